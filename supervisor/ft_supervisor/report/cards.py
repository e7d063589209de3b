"""What went wrong in a run, one card for each failed cycle, with equal neighbours folded. Pure.

The page and the terminal's report both show these cards.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import groupby, pairwise

from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.worker_words import sentence, what_it_said
from ft_supervisor.core.words import UNKNOWN, count, duration, plain, rung
from ft_supervisor.history.model import CycleEnd, CycleStory, FirstFailedWorker, History

MOST_CARDS = 100


@dataclass(frozen=True)
class Card:
    """Cycles that failed alike, one after the other. `what`: the failure in one line, the same for all but the place;
    `answer`: what was done about the last of them. `failure`: the first failed worker of the last of them. `cost`:
    seconds that the training did not go on, all together, None where none is known; `least`: whether one of them is
    not known. `final`: the job ended with it."""

    cycles: tuple[CycleStory, ...]
    what: str
    answer: str
    failure: FirstFailedWorker | None
    cost: float | None
    least: bool
    final: bool

    @property
    def at(self) -> float | None:
        """When the first of them failed."""
        first = self.cycles[0]
        return first.loss.at if first.loss else first.end

    @property
    def own(self) -> bool:
        """Whether a worker failed, or hung, by itself, and not because a node was lost."""
        last = self.cycles[-1]
        return (bool(last.failures) or last.hang is not None) and not last.lost

    @property
    def consequences(self) -> str:
        """A line about the workers that failed after a node was lost; "" where none did."""
        workers = len(self.cycles[-1].failures) if self.failure and self.failure.consequence_of else 0
        return f"{count(workers, 'worker')} of its peers failed as well: a consequence" if workers else ""

    @property
    def numbers(self) -> str:
        """The cycles' numbers: `0.3`, or `0.0 to 0.10`."""
        first, last = self.cycles[0].number, self.cycles[-1].number
        return first if first == last else f"{first} to {last}"


def cards(history: History) -> tuple[Card, ...]:
    """Return the cards, in order of time."""
    failed = [cycle for cycle in history.cycles if cycle.ended is CycleEnd.FAILED]
    following = {one.number: other for one, other in pairwise(history.cycles)}
    found = []
    for _, alike in groupby(failed, lambda cycle: _kind(cycle, following.get(cycle.number))):
        cycles = tuple(alike)
        last = cycles[-1]
        totals = [cycle.loss.total if cycle.loss else None for cycle in cycles]
        known = [each for each in totals if each is not None]
        later = following.get(last.number)
        failure = last.first
        found.append(
            Card(
                cycles,
                what_failed(last, failure),
                _answer(last, later, over=history.verdict is not None),
                failure,
                sum(known) if known else None,
                bool(known) and len(known) < len([cycle for cycle in cycles if cycle.number in following]),
                later is None and history.verdict is not None,
            )
        )
    return tuple(found)


def cost(card: Card) -> str:
    """Return the card's cost, with "at least" where one of its cycles' is not known."""
    if card.cost is None:
        return "the job ended" if card.final else UNKNOWN
    return ("at least " if card.least else "") + duration(card.cost)


def blamed(history: History) -> list[str]:
    """Return a line about workers that failed by themselves, unless the run's end is such a failure and names it."""
    own = [card for card in cards(history) if card.own]
    if not own or (own[-1].final and history.verdict is not None):
        return []
    times = sum(len(card.cycles) for card in own)
    often = "once" if times == 1 else f"{times} times, the last time"
    return [f"Workers failed by themselves {often}: {own[-1].what}"]


def what_failed(cycle: CycleStory, failure: FirstFailedWorker | None) -> str:
    """Return the cycle's failure in one line. Of a hang what was found out: it names the culprits, where the worker
    whose silence was noticed first is often one that waits for them."""
    if cycle.hang is not None:
        return plain(cycle.hang.reason)
    if failure is not None and not failure.consequence_of and not (cycle.cause == Cause.HANG and cycle.reason):
        return plain(sentence(failure.failure, failure.node))
    return plain(cycle.reason or cycle.cause)


def shown_failure(history: History) -> FirstFailedWorker | None:
    """Return the last failure of a worker by itself; without one, the last consequence of a node's loss."""
    own = [card.failure for card in cards(history) if card.own and card.failure]
    return own[-1] if own else history.first_failure


def blame(history: History) -> str:
    """Return what failed, in one line, the last failure of a worker by itself or else of a node."""
    all_cards = cards(history)
    if not all_cards:
        return "nothing failed"
    card = next((card for card in reversed(all_cards) if card.own), all_cards[-1])
    times = sum(len(card.cycles) for card in all_cards)
    of = "the last" if card is all_cards[-1] else "one"
    return f"failed: {card.what}" + (f" ({of} of {times} failures)" if times > 1 else "")


def _kind(cycle: CycleStory, later: CycleStory | None) -> Hashable:
    """Return a value that is the same for cycles which failed alike and were answered alike."""
    if cycle.first is None or cycle.first.consequence_of or (later is not None and _moved(cycle, later)):
        return cycle.number
    failure = cycle.first.failure
    return cycle.cause, failure.exit_code, failure.signal, failure.exception, what_it_said(failure)


def _moved(cycle: CycleStory, later: CycleStory) -> list[tuple[str, str]]:
    """Return the nodes that were replaced after the cycle, each with the node that has its place."""
    return [(old, new) for old, new in zip(cycle.nodes, later.nodes, strict=False) if old != new]


def _answer(cycle: CycleStory, later: CycleStory | None, *, over: bool) -> str:
    """Return what was done about the failure, by what followed it, with the budget of the rule that answered. `over`:
    the run has its verdict."""
    used, most = cycle.budget or (0, 0)
    if later is None:
        spent = f" · {used} of {count(most, 'restart')} spent" if used else ""
        return ("no cycle followed" if over else "no cycle has followed yet") + spent
    how = rung(cycle.how, cycle.why)
    moved = [(old, new) for old, new in _moved(cycle, later) if new not in cycle.nodes]
    if len(later.nodes) != len(cycle.nodes):
        where = f"went on with {len(later.nodes)} instead of {len(cycle.nodes)} nodes"
    elif moved:
        where = ", ".join(f"{new} took {old}'s place" for old, new in moved[:3])
        where += f" and {len(moved) - 3} more nodes were replaced" if len(moved) > 3 else ""
    else:
        where = "restarted on the same nodes"
    budget = f" · restart {used} of {most}" if used else ""
    return plain(" ".join(each for each in (where, how) if each) + budget)

"""The ledger: what the rules' budgets were spent on, which nodes are excluded, and since when all processes are new.

The coordinator sends it to every node, so that a successor goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ft_supervisor.core.protocol.bounds import Count, Moment, Rank
from ft_supervisor.core.protocol.cycle import Cycle
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.core.protocol.settings import Budget, InProcessBudget

MAX_TIMES = 1000
"""Times kept for one rule with a window; a budget there may allow no more."""


@dataclass(frozen=True)
class Spent:
    """How often one rule has answered. `times`: when it did, in seconds since the epoch by the coordinator's clock;
    only for a rule with a window. `nodes`: (infra_rank, how often); only for a rule that counts by node. `in_process`:
    how many of its restarts went on in the same processes, and `in_process_times` when, if that has a window; only for
    a rule that bounds them."""

    rule: Rank
    count: Count
    times: tuple[Moment, ...] = ()
    nodes: tuple[tuple[Rank, Count], ...] = ()
    in_process: Count = 0
    in_process_times: tuple[Moment, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """The account of all rules. `entries`: how many there have ever been; of two ledgers the one with more is newer.
    `used`: restarts charged to any rule. `step`: that of the newest checkpoint; `stalled`: how many charged restarts in
    a row have not moved it.
    `in_a_row`: charged restarts since a cycle last ran steadily. `excluded`: infra_ranks that a rule has excluded, as
    `ranks.format_ranks` writes them. `fresh`: the newest cycle whose workers all were to be new processes, so that no
    older process is to go on anywhere, now or later; None where none was, or nothing ever goes on in process."""

    entries: Count = 0
    used: Count = 0
    spent: tuple[Spent, ...] = ()
    step: Count | None = None
    stalled: Count = 0
    in_a_row: Count = 0
    excluded: str = ""
    fresh: Cycle | None = None

    def __post_init__(self) -> None:
        parse_ranks(self.excluded)  # ValueError
        if max(self.used, self.stalled, self.in_a_row) > self.entries:
            raise ValueError("more was counted than entered")

    def of(self, rule: int) -> Spent:
        """Return what this rule has spent."""
        return next((spent for spent in self.spent if spent.rule == rule), Spent(rule, 0))

    def count(self, rule: int, budget: Budget, at: float) -> int:
        """Return how often the rule has answered, within its window if it has one. `at`: seconds since the epoch."""
        spent = self.of(rule)
        if budget.window is None:
            return spent.count
        return sum(time > at - budget.window for time in spent.times)

    def count_in_process(self, rule: int, budget: InProcessBudget, at: float) -> int:
        """Return how many of the rule's restarts went on in the same processes, within the window if there is one."""
        spent = self.of(rule)
        if budget.window is None:
            return spent.in_process
        return sum(time > at - budget.window for time in spent.in_process_times)

    def of_node(self, rule: int, infra_rank: int) -> int:
        """Return how often the rule has answered failures of this node."""
        return dict(self.of(rule).nodes).get(infra_rank, 0)

    def charge(self, rule: int, budget: Budget, infra_rank: int | None, at: float) -> Ledger:
        """Return the ledger after one more answer of the rule, at `at`, to a failure of this node."""
        old = self.of(rule)
        times, nodes = _with(old.times, budget.window, at), dict(old.nodes)
        if budget.same_node is not None and infra_rank is not None:
            nodes[infra_rank] = nodes.get(infra_rank, 0) + 1
        new = replace(old, count=old.count + 1, times=times, nodes=tuple(sorted(nodes.items())))
        return replace(self._spend(new), used=self.used + 1, in_a_row=self.in_a_row + 1)

    def charge_in_process(self, rule: int, budget: InProcessBudget, at: float) -> Ledger:
        """Return the ledger after one more restart in the same processes by the rule, at `at`."""
        old = self.of(rule)
        times = _with(old.in_process_times, budget.window, at)
        return self._spend(replace(old, in_process=old.in_process + 1, in_process_times=times))

    def _spend(self, new: Spent) -> Ledger:
        others = [spent for spent in self.spent if spent.rule != new.rule]
        spent = tuple(sorted((*others, new), key=lambda each: each.rule))
        return replace(self, entries=self.entries + 1, spent=spent)

    def progressed(self, step: int | None) -> Ledger:
        """Return the ledger after a charged restart with this checkpoint's step; None: no checkpoint can be read."""
        advanced = self.advanced(step)
        return advanced if advanced is not self else replace(self, entries=self.entries + 1, stalled=self.stalled + 1)

    def advanced(self, step: int | None) -> Ledger:
        """Return the ledger after a restart that is not charged. A newer checkpoint than before is progress of the
        cycle that has ended, and not of the next one."""
        if step is None or (self.step is not None and step <= self.step):
            return self
        return replace(self, entries=self.entries + 1, step=step, stalled=0)

    def steady(self) -> Ledger:
        """Return the ledger after a cycle that ran so long that the next failure counts as a first one."""
        return self if not self.in_a_row else replace(self, entries=self.entries + 1, in_a_row=0)

    def exclude(self, infra_ranks: frozenset[int]) -> Ledger:
        """Return the ledger with these nodes excluded as well."""
        excluded = infra_ranks | set(parse_ranks(self.excluded))
        return replace(self, entries=self.entries + 1, excluded=format_ranks(sorted(excluded)))


def _with(times: tuple[float, ...], window: float | None, at: float) -> tuple[float, ...]:
    """Return the times within the window, with `at` as the last; without a window none is kept."""
    return times if window is None else (*(time for time in times if time > at - window), at)[-MAX_TIMES:]


EMPTY = Ledger()


def newer(one: Ledger, other: Ledger) -> Ledger:
    """Return the ledger with more entries, `one` if both have as many; its `fresh` is the newest of both. That is no
    account: a coordinator that has not heard of it may have entered more."""
    found = other if other.entries > one.entries else one
    fresh = max((each.fresh for each in (one, other) if each.fresh is not None), default=None)
    return found if found.fresh == fresh else replace(found, fresh=fresh)

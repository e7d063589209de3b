"""Collects the facts (history.fact) of each cycle. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

from ft_supervisor.core.protocol.model import Failure, Outcome, Verdict
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.signs import CycleSigns, beats
from ft_supervisor.history.fact import FactKind, RunFact
from ft_supervisor.history.model import CycleEnd


@dataclass
class CycleFacts:
    """The facts of one cycle. `made`: RunFact.made by infra_rank. The other dicts hold times: when the node started its
    workers (`runs`), had the first heartbeat of each (`beats`), ran nothing of the cycle any more (`over`), and
    succeeded. `signs`: those that nodes have sent to their coordinator; `told`: the failures that they have sent.
    `tells`: whether the run has such signs at all, and then whether heartbeats are among them; None for a run of an
    older version, and for a cycle whose coordinator's journal is missing. `saved`, `step`: of the newest checkpoint
    after the failure. `end`: when the cycle ended, None while it runs."""

    group: tuple[int, ...] = ()
    began: RunFact | None = None
    failed: RunFact | None = None
    first_failure: RunFact | None = None
    explained: RunFact | None = None
    decided: RunFact | None = None
    failures: set[Failure] = field(default_factory=set)
    made: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    runs: dict[int, float] = field(default_factory=dict)
    beats: dict[int, float] = field(default_factory=dict)
    over: dict[int, float] = field(default_factory=dict)
    succeeded: dict[int, float] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    signs: CycleSigns = field(default_factory=CycleSigns)
    told: set[Failure] = field(default_factory=set)
    tells: bool | None = None
    saved: float | None = None
    step: int | None = None
    ended: CycleEnd = CycleEnd.RUNNING
    end: float | None = None

    @property
    def start(self) -> float | None:
        """When the coordinator began the cycle; where no journal has that, when the first agent started workers."""
        return self.began.at if self.began else min(self.runs.values(), default=None)

    @property
    def started(self) -> float | None:
        """When the last node, of those that have told, started its workers."""
        if self.signs.started is not None:
            return self.signs.started
        return max(self.runs.values(), default=None)

    @property
    def up(self) -> float | None:
        """When the cycle began to train, by core.protocol.cost; None while this is still to come. In a run of an older
        version: when the last worker sent its first heartbeat; without heartbeats, when the last agent started its
        workers; the cycle's end if that was earlier."""
        if self.tells is not None:
            at = self.signs.beat if self.tells else self.signs.line
            return at if at is None or self.end is None else min(at, self.end)
        if not self.beats:
            return self.started
        up = max(self.beats.values()) if self.runs.keys() <= self.beats.keys() else None
        return up if self.end is None or (up is not None and up < self.end) else self.end

    @property
    def beating(self) -> float | None:
        """When the last node gave its first sign of training; None if that is not known."""
        if self.tells is not None:
            return self.up
        complete = self.runs and self.runs.keys() <= self.beats.keys()
        return max(self.beats.values()) if complete else None

    @property
    def reason_fact(self) -> RunFact | None:
        """The newest fact of the coordinator with the reason why the cycle failed."""
        return self.decided or self.failed

    def in_order(self) -> list[Failure]:
        """Return the failures in order of time, by the nodes' own clocks; those without a time come last."""
        return sorted(self.failures, key=lambda each: (each.time or float("inf"), each.infra_rank, each.local_rank))

    @property
    def first_failed(self) -> float | None:
        """When the first worker failed, if that is recorded; for a hang, when the worker fell silent."""
        known = self.told if self.failed and self.told else self.failures
        times = [each.time for each in known if each.time]
        if self.failed:
            hung = [each for each in known if each.cause is Cause.HANG and each.silent]
            times += [(each.time or self.failed.at) - each.silent for each in hung]
        return min(times, default=None)

    def all_over(self) -> float | None:
        """Return when nothing of the cycle could run any more; None if that is not known for all nodes."""
        if not self.group or not set(self.group) <= self.over.keys():
            return None
        return max(self.over[node] for node in self.group)


def order(number: str) -> tuple[int, int]:
    """Return a cycle's TERM.N as a pair that can be compared."""
    term, _, n = number.partition(".")
    return int(term), int(n)


def collect(facts: Iterable[RunFact], verdict: Verdict | None, proposed: RunFact | None) -> dict[str, CycleFacts]:
    """Return the facts of each cycle by its number, in order. `facts`: in order of time."""
    found: dict[str, CycleFacts] = {}
    missing: dict[int, list[float]] = {}
    for fact in facts:
        if fact.kind in (FactKind.NODE_LOST, FactKind.NODE_LEFT) and fact.node is not None:
            missing.setdefault(fact.node, []).append(fact.noticed or fact.at)
        if fact.kind is FactKind.STEP_READ and found and (last := found[max(found, key=order)]).failed:
            last.saved, last.step = fact.saved, fact.step
        if fact.cycle:
            _add(found.setdefault(fact.cycle, CycleFacts()), fact)
    for cycle in found.values():
        for node in cycle.group:  # a lost node, or one that left, runs nothing of the cycle any more
            gone = next((at for at in missing.get(node, ()) if at >= (cycle.start or 0.0)), None)
            if gone is not None:
                cycle.over.setdefault(node, gone)
    numbers = sorted(found, key=order)
    if any(cycle.signs.started is not None for cycle in found.values()):
        for cycle in found.values():
            cycle.tells = beats(found.values()) if cycle.began else None
    for number, following in zip_longest(numbers, numbers[1:], fillvalue=""):
        found[number].ended, found[number].end = _end(found[number], found.get(following), verdict, proposed)
    return {number: found[number] for number in numbers}


def _add(cycle: CycleFacts, fact: RunFact) -> None:
    cycle.group = cycle.group or fact.group
    if fact.kind not in (FactKind.FIRST_FAILURE, FactKind.HANG_NOTICED):  # the former repeats a failure
        cycle.failures |= set(fact.failures)
    if fact.kind is not FactKind.FIRST_FAILURE and fact.term is not None:
        cycle.told |= set(fact.failures)
    node = -1 if fact.node is None else fact.node
    match fact.kind:
        case FactKind.CYCLE_BEGAN:
            cycle.began = cycle.began or fact
        case FactKind.CYCLE_FAILED:
            cycle.failed = cycle.failed or fact
        case FactKind.FIRST_FAILURE:
            cycle.first_failure = fact
        case FactKind.HANG_EXPLAINED:
            cycle.explained = fact
        case FactKind.DECIDED:
            cycle.decided = fact
        case FactKind.TRAINING if fact.sign is not None:
            cycle.signs.add(node, fact.sign, fact.started, fact.signed)
        case FactKind.WORKERS_STARTED:
            cycle.runs.setdefault(node, fact.at)
        case FactKind.WORKERS_MADE if fact.made is not None:
            cycle.made.setdefault(node, fact.made)
        case FactKind.ALL_BEAT:
            cycle.beats.setdefault(node, fact.at)
        case FactKind.WORKERS_STOPPED:
            cycle.over[node] = fact.at if node not in cycle.over or node in cycle.gone else cycle.over[node]
            cycle.gone.discard(node)
        case FactKind.WORKERS_GONE if node not in cycle.over:  # by the agent's journal, until the coordinator's has it
            cycle.over[node] = fact.at
            cycle.gone.add(node)
        case FactKind.WORKERS_SUCCEEDED:
            cycle.succeeded.setdefault(node, fact.at)
            cycle.over.setdefault(node, fact.at)
        case FactKind.WORKERS_EXITED if not fact.failures:
            cycle.succeeded.setdefault(node, fact.at)


def _end(
    cycle: CycleFacts, later: CycleFacts | None, verdict: Verdict | None, proposed: RunFact | None
) -> tuple[CycleEnd, float | None]:
    """Return how the cycle ended, and when. `later`: the next cycle."""
    if cycle.failed:
        return CycleEnd.FAILED, cycle.failed.at
    if cycle.group and set(cycle.group) <= cycle.succeeded.keys():
        return CycleEnd.SUCCESS, max(cycle.succeeded.values())
    if cycle.failures:  # its coordinator's journal is lost, but the agents' have the failures
        return CycleEnd.FAILED, cycle.first_failed
    if later is not None:
        return CycleEnd.UNKNOWN, later.start
    verdict = verdict or (proposed.verdict if proposed else None)
    if verdict is None:
        return CycleEnd.RUNNING, None
    at = proposed.at if proposed else max(cycle.over.values(), default=None)
    return CycleEnd.SUCCESS if verdict.outcome is Outcome.SUCCESS else CycleEnd.ENDED, at

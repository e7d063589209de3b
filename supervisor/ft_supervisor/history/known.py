"""What facts (history.fact) tell of each cycle. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

from ft_supervisor.core.protocol.model import Failure, Outcome, Verdict
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.history.fact import Fact
from ft_supervisor.history.model import CycleEnd


@dataclass
class Known:
    """One cycle. The dicts are by infra_rank: when it started workers, had all their first heartbeats, had nothing of
    the cycle any more, had success. `end`: the cycle's, and of one that runs None."""

    group: tuple[int, ...] = ()
    began: Fact | None = None
    failed: Fact | None = None
    first_failure: Fact | None = None
    decided: Fact | None = None
    failures: set[Failure] = field(default_factory=set)
    runs: dict[int, float] = field(default_factory=dict)
    beats: dict[int, float] = field(default_factory=dict)
    over: dict[int, float] = field(default_factory=dict)
    succeeded: dict[int, float] = field(default_factory=dict)
    ended: CycleEnd = CycleEnd.RUNNING
    end: float | None = None

    @property
    def start(self) -> float | None:
        return self.began.at if self.began else min(self.runs.values(), default=None)

    @property
    def started(self) -> float | None:
        """By the last of the agents whose journals are there."""
        return max(self.runs.values(), default=None)

    @property
    def up(self) -> float | None:
        """When the last worker was heard that sends heartbeats, or the last agent had started its own; the cycle's end
        if that was before. None also while it is still to come."""
        if not self.beats:
            return self.started
        up = max(self.beats.values()) if self.runs.keys() <= self.beats.keys() else None
        return up if self.end is None or (up is not None and up < self.end) else self.end

    @property
    def beating(self) -> float | None:
        """When the last worker was first heard; None where they say nothing, or not all did."""
        complete = self.runs and self.runs.keys() <= self.beats.keys()
        return max(self.beats.values()) if complete else None

    @property
    def said(self) -> Fact | None:
        """The coordinator's last word on why it failed."""
        return self.decided or self.failed

    def in_order(self) -> list[Failure]:
        """By the nodes' own clocks, those without a time last."""
        return sorted(self.failures, key=lambda each: (each.time or float("inf"), each.infra_rank, each.local_rank))

    @property
    def first_failed(self) -> float | None:
        """When the first worker failed, as far as that was written down; of one that hangs when it fell silent."""
        times = [each.time for each in self.failures if each.time]
        if self.failed:
            hung = [each for each in self.failures if each.cause is Cause.HANG and each.silent]
            times += [(each.time or self.failed.at) - each.silent for each in hung]
        return min(times, default=None)

    def all_over(self) -> float | None:
        """When nothing of it could run any more."""
        if not self.group or not set(self.group) <= self.over.keys():
            return None
        return max(self.over[node] for node in self.group)


def order(number: str) -> tuple[int, int]:
    """A cycle's TERM.N, for comparing."""
    term, _, n = number.partition(".")
    return int(term), int(n)


def collect(facts: Iterable[Fact], verdict: Verdict | None, proposed: Fact | None) -> dict[str, Known]:
    """By number, in order. `facts` in order."""
    found: dict[str, Known] = {}
    missing: dict[int, list[float]] = {}
    for fact in facts:
        if fact.what in ("lost", "left") and fact.node is not None:
            missing.setdefault(fact.node, []).append(fact.told or fact.at)
        if fact.cycle:
            _tell(found.setdefault(fact.cycle, Known()), fact)
    for cycle in found.values():
        for node in cycle.group:  # one that is missing runs nothing any more, whatever it was
            gone = next((at for at in missing.get(node, ()) if at >= (cycle.start or 0.0)), None)
            if gone is not None:
                cycle.over.setdefault(node, gone)
    numbers = sorted(found, key=order)
    for number, following in zip_longest(numbers, numbers[1:], fillvalue=""):
        found[number].ended, found[number].end = _end(found[number], found.get(following), verdict, proposed)
    return {number: found[number] for number in numbers}


def _tell(cycle: Known, fact: Fact) -> None:
    cycle.group = cycle.group or fact.group
    if fact.what != "first_failure":  # which repeats one
        cycle.failures |= set(fact.failures)
    node = -1 if fact.node is None else fact.node
    match fact.what:
        case "began":
            cycle.began = cycle.began or fact
        case "failed":
            cycle.failed = cycle.failed or fact
        case "first_failure":
            cycle.first_failure = fact
        case "decided":
            cycle.decided = fact
        case "run":
            cycle.runs.setdefault(node, fact.at)
        case "beats":
            cycle.beats.setdefault(node, fact.at)
        case "stopped" | "gone":
            cycle.over.setdefault(node, fact.at)
        case "succeeded":
            cycle.succeeded.setdefault(node, fact.at)
            cycle.over.setdefault(node, fact.at)
        case "exited" if not fact.failures:
            cycle.succeeded.setdefault(node, fact.at)


def _end(
    cycle: Known, later: Known | None, verdict: Verdict | None, proposed: Fact | None
) -> tuple[CycleEnd, float | None]:
    if cycle.failed:
        return CycleEnd.FAILED, cycle.failed.at
    if cycle.group and set(cycle.group) <= cycle.succeeded.keys():
        return CycleEnd.SUCCESS, max(cycle.succeeded.values())
    if cycle.failures:  # its coordinator's journal is lost, its agents' are there
        return CycleEnd.FAILED, cycle.first_failed
    if later is not None:
        return CycleEnd.UNKNOWN, later.start
    verdict = verdict or (proposed.verdict if proposed else None)
    if verdict is None:
        return CycleEnd.RUNNING, None
    at = proposed.at if proposed else max(cycle.over.values(), default=None)
    return CycleEnd.SUCCESS if verdict.outcome is Outcome.SUCCESS else CycleEnd.ENDED, at

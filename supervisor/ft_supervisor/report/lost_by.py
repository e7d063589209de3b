"""Shares what a run has lost among its failures, for sums by cause and by node. Pure; times are seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ft_supervisor.core.protocol.cost import LOST, CycleTimes, split
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.history.model import CycleEnd, CycleStory, History
from ft_supervisor.report.words import culprits

MOST = 1000
"""Failures of a run, the newest, that are told apart: the work grows with the square of their number."""
UNKNOWN = "unknown"
REQUEUE = "requeue"
"""The cause of what is lost between two runs of a job."""


@dataclass(frozen=True)
class Blamed:
    """What the end of one cycle has cost. `cause`: as in CycleStory, or REQUEUE; `node`: the one that failed first, ""
    if none did. `counts`: it is a failure, and no drain or growth. `lost`: of the run's account; `repeated`: training
    that was done again, None if the job tells no checkpoints. `hang`: who began it, and where; "" for no hang."""

    cause: str
    node: str
    counts: bool
    lost: float
    repeated: float | None
    hang: str = ""


def blamed(history: History, *, goes_on: bool) -> list[Blamed]:
    """Return what each cycle's end has cost; the `lost` of all add up to the account's. `goes_on`: the job had another
    run after this one, which did again what no checkpoint had."""
    until = history.ended or history.until
    if history.cost is None or history.start is None or until is None:
        return []
    ends = [_stopped(cycle.times, history.start) for cycle in history.cycles]
    repeated = dict(_repeated(history, ends, until, goes_on=goes_on))
    over = history.ended is not None or history.verdict is not None
    times = [cycle.times for cycle in history.cycles]
    found: list[Blamed] = []
    after = _lost(history.start, until, times, over)
    for index in reversed(range(max(0, len(ends) - MOST), len(ends))):
        cycle, end = history.cycles[index], ends[index]
        if end is None:
            continue
        before = min(after, _lost(history.start, min(end, until), times, over))
        failed = cycle.ended is CycleEnd.FAILED
        counts = failed and cycle.cause not in (Cause.DRAIN, "growth")
        cause = cycle.cause if failed else REQUEUE if index == len(ends) - 1 else UNKNOWN
        node, hang = (_node(cycle), culprits(cycle)) if counts else ("", "")
        found.append(Blamed(cause, node, counts, after - before, repeated.get(index), hang))
        after = before
    if after > 0:
        found.append(Blamed(UNKNOWN, "", False, after, None))
    return found[::-1]


def _lost(start: float, until: float, times: Sequence[CycleTimes], over: bool) -> float:
    parts = split(start, until, times, over=over)
    return sum(parts[part] for part in LOST)


def _stopped(cycle: CycleTimes, start: float) -> float | None:
    """Return when the cycle stopped to train; None if it has not ended."""
    if cycle.ended is None:
        return None
    return max(start, cycle.ended if cycle.happened is None else min(cycle.happened, cycle.ended))


def _repeated(
    history: History, ends: list[float | None], until: float, *, goes_on: bool
) -> Iterator[tuple[int, float]]:
    """Yield (index of the cycle, seconds of its training after its newest checkpoint), of each that was followed."""
    if not history.checkpoints:
        return
    kept = [checkpoint.at for checkpoint in history.checkpoints]
    for index, (cycle, later) in enumerate(pairwise([*history.cycles, None])):
        assert cycle is not None
        trained, end = cycle.times.training, ends[index]
        if trained is None or end is None or not (later or (goes_on and cycle.ended is not CycleEnd.SUCCESS)):
            continue
        bound = later.start if later and later.start is not None else until
        newest = max((at for at in kept if trained <= at <= bound), default=trained)  # one may come while it stops
        yield index, max(0.0, min(end, until) - newest)


def _node(cycle: CycleStory) -> str:
    if cycle.lost:
        return min(cycle.lost, key=lambda each: each.at).node
    if cycle.hang is not None:
        return cycle.hang.node or UNKNOWN
    return cycle.first.node if cycle.first is not None else UNKNOWN

"""Finds what checkpoints cost, from the journals. Pure.

The coordinator sees when the job's step file is written, the last thing of a checkpoint. The training's heartbeats stop
meanwhile: a checkpoint's cost is the time between the two heartbeats around it, less the usual time between two of
them. Both are known to the agent's tick (timeouts.heartbeat). A file system whose clock differs from the nodes' by more
than a checkpoint takes makes the cost wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from ft_supervisor.history.model import Checkpoint, CycleStory

MOST_BEATS = 500_000
"""Heartbeats that are kept of one journal: 4 MB, three days at two a second."""
MOST_JOURNALS = 4
"""Agents whose heartbeats are kept: all ranks wait for the one that writes."""


def checkpoints(
    seen: Iterable[tuple[int, float]], beats: Sequence[Sequence[float]], cycles: Sequence[CycleStory]
) -> tuple[Checkpoint, ...]:
    """Return the checkpoints in order of time, each once. `seen`: (step, written) of each; `beats`: times of one
    worker's heartbeats, in order and without holes; all in seconds since the epoch."""
    spans = [(cycle.times.training, _end(cycle)) for cycle in cycles]
    gaps = [(times, _usual(times)) for times in beats if len(times) > 2]
    found = []
    for step, at in sorted(set(seen), key=lambda each: each[1]):
        costs = [_cost(at, times, usual, spans) for times, usual in gaps]
        known = [cost for cost in costs if cost is not None]
        found.append(Checkpoint(step, at, median(known) if known else None))
    return tuple(found)


def _end(cycle: CycleStory) -> float:
    """Return when the cycle stopped to train."""
    ends = [at for at in (cycle.times.happened, cycle.times.ended) if at is not None]
    return min(ends, default=float("inf"))


def _usual(times: Sequence[float]) -> float:
    return median(later - at for at, later in pairwise(times))


def _cost(at: float, times: Sequence[float], usual: float, spans: Sequence[tuple[float | None, float]]) -> float | None:
    """Return what one checkpoint has cost, by one worker's heartbeats; None unless both are of one cycle's training."""
    later = bisect_left(times, at)
    if not 0 < later < len(times):
        return None
    before, after = times[later - 1], times[later]
    whole = any(start is not None and start <= before and after <= end for start, end in spans)
    return max(0.0, after - before - usual) if whole else None

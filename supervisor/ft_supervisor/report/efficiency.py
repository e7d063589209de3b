"""Computes how much of the time of jobs went into training, and what the rest went into. Pure; times are seconds.

The effective training time ratio (ETTR) is defined as in "Revisiting Reliability in Large-Scale Machine Learning
Research Clusters" (arXiv 2410.21680): productive runtime / available wallclock time of a job run. A job run is a job
with all its requeues. Its available time is the time in which it was scheduled or waited in the queue, from Slurm's
records. Its productive time is that in which all workers of a cycle trained, without steps that were done twice. How
long these took is not recorded, so the ratio is an upper bound where a job has repeated steps or does not tell them.

A checkpoint that takes C every t seconds costs C/t, and a failure each M seconds costs t/2 of repeated work on average:
waste = C/t + t/(2M). Young's and Daly's rule takes the t with the least waste: t = sqrt(2 * C * M).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ft_slurm.records import JobRow
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.history.model import CycleEnd, History


@dataclass(frozen=True)
class Efficiency:
    """The account of one job, or of several. `available` = `queued` + `scheduled`; `training`: None if a run's journals
    are missing. `failures`: cycles that failed. `by_part`: seconds lost in each part of history.model.Loss; `by_cause`
    and `by_node`: seconds lost, of failures after which training went on."""

    queued: float = 0.0
    requeued: float = 0.0
    scheduled: float = 0.0
    training: float | None = 0.0
    failures: int = 0
    by_part: tuple[tuple[str, float], ...] = ()
    by_cause: tuple[tuple[str, float], ...] = ()
    by_node: tuple[tuple[str, float], ...] = ()

    @property
    def available(self) -> float:
        """Seconds in which the job was scheduled or waited for it."""
        return self.queued + self.requeued + self.scheduled

    @property
    def ettr(self) -> float | None:
        """The ratio, 0 to 1, at most; None if it is not known."""
        if self.training is None or self.available <= 0:
            return None
        return min(1.0, self.training / self.available)

    @property
    def between_failures(self) -> float | None:
        """The mean time of training between two failures; None without a failure."""
        return self.training / self.failures if self.training and self.failures else None


def of_job(records: Sequence[JobRow], histories: Sequence[History | None]) -> Efficiency:
    """Return the account of a job. `records`: Slurm's of all its starts; `histories`: of each of its runs, None for one
    without journals."""
    ended = [row for row in sorted(records, key=lambda row: row.start or 0) if row.start is not None]
    waits = [max(0.0, (row.start or 0) - (row.submit or row.start or 0)) for row in ended]
    known = [history for history in histories if history is not None and history.training is not None]
    complete = bool(histories) and len(known) == len(histories)
    parts: defaultdict[str, float] = defaultdict(float)
    causes: defaultdict[str, float] = defaultdict(float)
    nodes: defaultdict[str, float] = defaultdict(float)
    failures = 0
    for cycle in (cycle for history in known for cycle in history.cycles):
        loss = cycle.loss
        if cycle.ended is not CycleEnd.FAILED or loss is None or cycle.cause == "growth":
            continue
        failures += cycle.cause != Cause.DRAIN
        for name in ("detection", "stop", "decision", "rendezvous", "worker_start"):
            parts[name] += getattr(loss, name) or 0.0
        if loss.total is not None:
            causes[cycle.cause] += loss.total
            first = min(cycle.lost, key=lambda each: each.at).node if cycle.lost else None
            node = first or (cycle.first.node if cycle.first is not None else None)
            nodes[node or "unknown"] += loss.total
    return Efficiency(
        queued=sum(waits[:1]),
        requeued=sum(waits[1:]),
        scheduled=sum(max(0.0, (row.end or row.start or 0) - (row.start or 0)) for row in ended),
        training=sum(history.training or 0.0 for history in known) if complete else None,
        failures=failures,
        by_part=_sorted(parts),
        by_cause=_sorted(causes),
        by_node=_sorted(nodes),
    )


def total(each: Iterable[Efficiency]) -> Efficiency:
    """Return the sum of the jobs whose training time is known."""
    known = [one for one in each if one.training is not None]
    return Efficiency(
        queued=sum(one.queued for one in known),
        requeued=sum(one.requeued for one in known),
        scheduled=sum(one.scheduled for one in known),
        training=sum(one.training or 0.0 for one in known),
        failures=sum(one.failures for one in known),
        by_part=_sum(one.by_part for one in known),
        by_cause=_sum(one.by_cause for one in known),
        by_node=_sum(one.by_node for one in known),
    )


def best_interval(save: float, between_failures: float) -> float:
    """Return the interval between checkpoints with the least waste, by Young's and Daly's rule. `save`: seconds that
    one takes."""
    return math.sqrt(2 * save * between_failures)


def waste(interval: float, save: float, between_failures: float) -> float:
    """Return the fraction of the time that checkpoints and repeated work cost with this interval."""
    return save / interval + interval / (2 * between_failures)


def _sum(each: Iterable[tuple[tuple[str, float], ...]]) -> tuple[tuple[str, float], ...]:
    found: defaultdict[str, float] = defaultdict(float)
    for pairs in each:
        for name, seconds in pairs:
            found[name] += seconds
    return _sorted(found)


def _sorted(found: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(((name, value) for name, value in found.items() if value > 0), key=lambda each: -each[1]))

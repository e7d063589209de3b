"""Computes how much of the time of jobs went into training, and what the rest went into. Pure; times are seconds.

The effective training time ratio (ETTR) is defined as in "Revisiting Reliability in Large-Scale Machine Learning
Research Clusters" (arXiv 2410.21680): productive runtime / available wallclock time of a job run. A job run is a job
with all its requeues. Its available time is that in which it was scheduled or waited in the queue, from Slurm's
records. Its productive time is the training of core.protocol.cost, without what was done twice: the training after a
cycle's newest checkpoint, if another cycle or another run followed. Where that is not known the ratio is an upper
bound. report.job_time makes the account of a job.

A checkpoint that takes C every t seconds costs C/t, and a failure each M seconds costs t/2 of repeated work on average:
waste = C/t + t/(2M). Young's and Daly's rule takes the t with the least waste: t = sqrt(2 * C * M).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PARTS = (
    *("training", "repeated", "first_start", "detection", "stop", "decision", "waiting", "rendezvous", "starting"),
    *("requeued", "queued", "outside", "end", "unknown"),
)
"""What a job's available time is split into: the account's parts, where `training` is without `repeated`; `queued`
before its first start and `requeued` before the others; `outside`, which Slurm counts and the account does not."""


@dataclass(frozen=True)
class Saves:
    """What is known of checkpoints: `number` in all; the sum and the number of their `costs`, and of the times from one
    to the next in a cycle, `gaps`."""

    number: int = 0
    cost: float = 0.0
    costs: int = 0
    gap: float = 0.0
    gaps: int = 0

    def __add__(self, other: Saves) -> Saves:
        number, cost, costs = self.number + other.number, self.cost + other.cost, self.costs + other.costs
        return Saves(number, cost, costs, self.gap + other.gap, self.gaps + other.gaps)

    @property
    def each(self) -> float | None:
        """What one costs; None if that is not known."""
        return self.cost / self.costs if self.costs else None

    @property
    def every(self) -> float | None:
        """The mean time from one to the next; None if that is not known."""
        return self.gap / self.gaps if self.gaps else None


@dataclass(frozen=True)
class Efficiency:
    """The account of one job, or of several. `parts`: seconds by the names of PARTS, which add up to `available`.
    `known`: there are journals. `exact`: nothing is missing; if not, the ratio is at most `ettr`. `failures`: cycles
    that failed, drains and growth not counted. `by_cause`, `by_node`: seconds that the ends of cycles have cost, with
    the work that was repeated, the greatest first; `by_hang`: the same of hangs, by who began them, and where."""

    parts: Mapping[str, float] = field(default_factory=dict)
    known: bool = False
    exact: bool = True
    failures: int = 0
    by_cause: tuple[tuple[str, float], ...] = ()
    by_node: tuple[tuple[str, float], ...] = ()
    by_hang: tuple[tuple[str, float], ...] = ()
    saves: Saves = Saves()

    def part(self, name: str) -> float:
        """Return the seconds of one part."""
        return self.parts.get(name, 0.0)

    @property
    def available(self) -> float:
        """Seconds in which the job was scheduled or waited for it."""
        return sum(self.parts.values())

    @property
    def ettr(self) -> float | None:
        """The ratio, 0 to 1, where unknown time counts as training; None without journals."""
        if not self.known or self.available <= 0:
            return None
        return min(1.0, (self.part("training") + self.part("unknown")) / self.available)

    @property
    def trained(self) -> float:
        """Seconds of training, with those that were repeated."""
        return self.part("training") + self.part("repeated")

    @property
    def between_failures(self) -> float | None:
        """The mean time of training between two failures; None without a failure."""
        return self.trained / self.failures if self.failures and self.trained > 0 else None


def total(each: Iterable[Efficiency]) -> Efficiency:
    """Return the sum of the jobs that have journals."""
    known = [one for one in each if one.known]
    return Efficiency(
        parts={name: sum(one.part(name) for one in known) for name in PARTS},
        known=bool(known),
        exact=all(one.exact for one in known),
        failures=sum(one.failures for one in known),
        by_cause=_sum(one.by_cause for one in known),
        by_node=_sum(one.by_node for one in known),
        by_hang=_sum(one.by_hang for one in known),
        saves=sum((one.saves for one in known), Saves()),
    )


@dataclass(frozen=True)
class Interval:
    """What Young's and Daly's rule says. `save`: seconds of a checkpoint; `every`: the present interval, None if that
    is not known; `best`: the one with the least waste; `waste`, `least`: fractions of the time with either; `won`:
    seconds of training that `best` would have saved."""

    save: float
    every: float | None
    best: float
    waste: float | None
    least: float
    won: float | None


def interval(whole: Efficiency, save: float | None = None, every: float | None = None) -> Interval | None:
    """Return the advice for these jobs; None without failures, or if a checkpoint's cost is not known. `save`, `every`:
    in place of what was measured."""
    save, every = save or whole.saves.each, every or whole.saves.every
    between = whole.between_failures
    if not save or between is None:
        return None
    best = best_interval(save, between)
    least = waste(best, save, between)
    now = waste(every, save, between) if every else None
    return Interval(save, every, best, now, least, None if now is None else (now - least) * whole.trained)


def best_interval(save: float, between_failures: float) -> float:
    """Return the interval between checkpoints with the least waste, by Young's and Daly's rule. `save`: seconds that
    one takes."""
    return math.sqrt(2 * save * between_failures)


def waste(interval: float, save: float, between_failures: float) -> float:
    """Return the fraction of the time that checkpoints and repeated work cost with this interval."""
    return save / interval + interval / (2 * between_failures)


def _sum(each: Iterable[tuple[tuple[str, float], ...]]) -> tuple[tuple[str, float], ...]:
    found: defaultdict[str, float] = defaultdict(float)
    for name, seconds in (pair for pairs in each for pair in pairs):
        found[name] += seconds
    return ranked(found)


def ranked(found: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return the pairs with the greatest number first, without those that are 0."""
    return tuple(sorted(((name, value) for name, value in found.items() if value > 0), key=lambda each: -each[1]))

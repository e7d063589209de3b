"""Makes the account of one job's time from Slurm's records and the histories of its runs. Pure; times are seconds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ft_slurm import job_states
from ft_slurm.records import JobRow
from ft_supervisor.core.protocol.cost import Part
from ft_supervisor.history.model import History
from ft_supervisor.report.efficiency import PARTS, Efficiency, Saves, ranked
from ft_supervisor.report.lost_by import REQUEUE, blamed

CLOCKS = 60.0
"""Seconds by which the clocks of Slurm's controller and of a node may differ."""


@dataclass
class _Start:
    """A time in which Slurm ran the job, until now if it has not ended. `runs`: those of that time."""

    start: float
    end: float
    runs: list[History] = field(default_factory=list)


def of_job(records: Sequence[JobRow], histories: Sequence[History], now: float) -> Efficiency:
    """Return the account of a job. `records`: Slurm's of all its starts, in the order in which they were submitted;
    `histories`: of its runs, as far as there are any; `now`: seconds since the epoch, for a job that has not ended."""
    starts = _starts(records, now)
    known = [each for each in histories if each.cost is not None and each.start is not None]
    if not starts:
        return Efficiency(exact=False)
    _share_out(known, starts)
    again = any(row.start is None and not job_states.find(row.state).over for row in records)
    sums = _Sums()
    for start in starts:
        _add(sums, start, followed=again or start is not starts[-1])
    submit = records[0].submit
    sums.parts["queued"] = 0.0 if submit is None else max(0.0, starts[0].start - submit)
    sums.parts["requeued"] = sum(max(0.0, later.start - each.end) for each, later in pairwise(starts))
    if again:
        sums.parts["requeued"] += max(0.0, now - starts[-1].end)
    sums.causes[REQUEUE] += sums.parts["requeued"]
    repeated = min(sums.parts["repeated"], sums.parts["training"])
    sums.parts["repeated"], sums.parts["training"] = repeated, sums.parts["training"] - repeated
    return Efficiency(
        parts={name: sums.parts[name] for name in PARTS},
        known=any(start.runs for start in starts),
        exact=sums.exact,
        failures=sums.failures,
        by_cause=ranked(sums.causes),
        by_node=ranked(sums.nodes),
        by_hang=ranked(sums.hangs),
        saves=sums.saves,
    )


def _seconds() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass
class _Sums:
    parts: defaultdict[str, float] = field(default_factory=_seconds)
    causes: defaultdict[str, float] = field(default_factory=_seconds)
    nodes: defaultdict[str, float] = field(default_factory=_seconds)
    hangs: defaultdict[str, float] = field(default_factory=_seconds)
    failures: int = 0
    saves: Saves = field(default_factory=Saves)
    exact: bool = True


def _starts(records: Sequence[JobRow], now: float) -> list[_Start]:
    """Return the times in which the job was scheduled, in order. Slurm ends a record when the job loses a node, and
    begins another one: these are one start."""
    found: list[_Start] = []
    resized = False
    began = [(row.start, row) for row in records if row.start is not None]
    for start, row in sorted(began, key=lambda each: (each[0], each[1].end or math.inf)):
        end = max(float(start), now if row.end is None else float(row.end))
        if resized:
            found[-1].end = max(found[-1].end, end)
        else:
            found.append(_Start(float(start), end))
        resized = job_states.find(row.state).name == "RESIZING"
    return found


def _share_out(histories: Sequence[History], starts: Sequence[_Start]) -> None:
    """Give each start its runs, in order. Runs of before the first start are left out: its record was not asked for."""
    for history in sorted(histories, key=lambda each: each.start or 0.0):
        at = history.start or 0.0
        if at >= starts[0].start - CLOCKS:
            next((start for start in starts if at < start.end), starts[-1]).runs.append(history)


def _add(sums: _Sums, start: _Start, *, followed: bool) -> None:
    """Add one start. `followed`: the job has run again, or will."""
    whole = 0.0
    for history in start.runs:
        assert history.cost is not None
        goes_on = followed or history is not start.runs[-1]
        whole += history.cost.whole
        for part in Part:
            sums.parts[part.value] += history.cost.part(part)
        sums.saves += _saves(history)
        for each in blamed(history, goes_on=goes_on):
            cost = each.lost + (each.repeated or 0.0)
            sums.causes[each.cause] += cost
            sums.parts["repeated"] += each.repeated or 0.0
            sums.failures += each.counts
            if each.node:
                sums.nodes[each.node] += cost
            if each.hang:
                sums.hangs[each.hang] += cost
        repeats = goes_on or len(history.cycles) > 1
        sums.exact &= history.cost.exact and not (repeats and not history.checkpoints)
    told = bool(start.runs) and start.runs[-1].ended is not None  # else its journals end before it has
    sums.parts["outside" if told else "unknown"] += max(0.0, start.end - start.start - whole)
    sums.exact &= told


def _saves(history: History) -> Saves:
    """Return what the run's checkpoints tell; the times between them are counted within a cycle."""
    found = Saves()
    for cycle in history.cycles:
        if (trained := cycle.times.training) is None:
            continue
        inside = [each for each in history.checkpoints if trained <= each.at <= (cycle.times.ended or math.inf)]
        costs = [each.cost for each in inside if each.cost is not None]
        gap = inside[-1].at - inside[0].at if inside else 0.0
        found += Saves(len(inside), sum(costs), len(costs), gap, max(0, len(inside) - 1))
    return found

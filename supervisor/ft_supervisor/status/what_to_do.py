"""Finds the rows of docs/3am.md that fit a job's present state: what is wrong, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ft_supervisor.core.protocol.model import Ending
from ft_supervisor.report.advice import Advice, by_cause, by_ending, row
from ft_supervisor.run_folder.snapshot import NodeRole, Snapshot
from ft_supervisor.status.judgement import JobStatus, RunState

MOST = 2
"""Rows that are shown: more of them say nothing."""
RECENT = 600.0
"""Seconds for which a failure's advice is shown, though the training goes on."""


def advised(seen: JobStatus) -> tuple[Advice, ...]:
    """Return the rows, the most urgent first; () if nothing is wrong."""
    return tuple(dict.fromkeys(_rows(seen)))[:MOST]


def _rows(seen: JobStatus) -> Iterator[Advice]:
    shot, verdict = seen.files.snapshot, seen.files.verdict
    if seen.left is not None:
        yield row("runs-for-ever")
    if verdict is not None:
        if verdict.ending is not Ending.TRAINED:
            yield from by_ending(verdict.ending)
    elif seen.state is RunState.STALE:
        yield row("no-verdict" if seen.slurm is not None and seen.slurm.over else "file-hangs")
    elif seen.state is RunState.UNKNOWN and seen.starting is None:
        yield row("nothing-at-all")
    elif shot is not None:
        yield from _running(shot, (seen.age or 0.0) + shot.time)


def _running(shot: Snapshot, now: float) -> Iterator[Advice]:
    if shot.cycle is not None and shot.verdict is None and not shot.coordinator.majority:
        yield row("majority-lost")
    if shot.waits is not None and not shot.waits.enough:
        yield row("nodes-missing")
    if shot.slurm_away:
        yield row("slurm-is-away")
    if any(not budget.left for budget in shot.budgets):
        yield row("budget-spent")
    decision = shot.decision
    if decision is not None and decision.cause and now - decision.time < RECENT:
        yield from by_cause(decision.cause)
    if shot.count(NodeRole.UNHEALTHY):
        yield row("check-excludes")

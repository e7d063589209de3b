"""Collects what the first failed worker of each failed cycle has printed at its end. Reads files, which may hang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.words import plain
from ft_supervisor.history import read_run
from ft_supervisor.history.model import CycleEnd, CycleStory
from ft_supervisor.run_folder import worker_logs

LINES = 40


@dataclass(frozen=True)
class FailedLog:
    """The end of one worker's output. `reason`: why the cycle ended; `rank`: None where no worker failed, or its place
    is not known; `source`: the file, "" without one."""

    cycle: str
    reason: str
    rank: int | None
    lines: tuple[str, ...]
    source: str = ""


def gather(folder: Path) -> list[FailedLog]:
    """Return one entry for each failed cycle of the run in `folder`, in order."""
    return of_cycles(read_run.read(folder).cycles, folder)


def of_cycles(cycles: Sequence[CycleStory], folder: Path) -> list[FailedLog]:
    """Return an entry for each cycle that failed, of the worker that the report names. `folder`: the run's."""
    return [_of(cycle, folder) for cycle in cycles if cycle.ended is CycleEnd.FAILED]


def text(log: FailedLog) -> str:
    """Return the entry for people: a head line, and the lines below it."""
    where = f" ({log.source})" if log.source else ""
    lines = [f"== cycle {log.cycle}: {plain(log.reason)}{where}", *map(plain, log.lines)]
    if not log.lines:
        lines.append("no worker failed by itself" if log.rank is None else "nothing that it printed is kept")
    return "".join(f"{line}\n" for line in lines)


def _of(cycle: CycleStory, folder: Path) -> FailedLog:
    first = cycle.first
    if first is None or first.rank is None:
        return FailedLog(cycle.number, cycle.reason, None, first.lines if first else ())
    path = worker_logs.file(folder, cycle.number, first.rank)
    lines = worker_logs.last_lines(path, LINES)
    source = str(path.relative_to(folder)) if lines else ""
    return FailedLog(cycle.number, cycle.reason, first.rank, lines or first.lines, source)

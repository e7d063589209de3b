"""Collects what the first failed worker of each failed cycle has printed at its end. Reads files, which may hang."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.words import plain
from ft_supervisor.history import read_run
from ft_supervisor.history.model import CycleEnd, CycleStory, History
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
    history = read_run.read(folder)
    return [_of(cycle, history, folder) for cycle in history.cycles if cycle.ended is CycleEnd.FAILED]


def text(log: FailedLog) -> str:
    """Return the entry for people: a head line, and the lines below it."""
    where = f" ({log.source})" if log.source else ""
    lines = [f"== cycle {log.cycle}: {plain(log.reason)}{where}", *map(plain, log.lines)]
    if not log.lines:
        lines.append("no worker failed by itself" if log.rank is None else "nothing that it printed is kept")
    return "".join(f"{line}\n" for line in lines)


def _of(cycle: CycleStory, history: History, folder: Path) -> FailedLog:
    failures = (cycle.first.failure,) if cycle.hang and cycle.first else cycle.failures
    if not failures:
        return FailedLog(cycle.number, cycle.reason, None, ())
    failure, per_node = failures[0], history.per_node
    kept = tuple(failure.last_lines.splitlines())
    name = next((node.name for node in history.nodes if node.infra_rank == failure.infra_rank), "")
    if name not in cycle.nodes or per_node is None or failure.local_rank < 0:
        return FailedLog(cycle.number, cycle.reason, None, kept)
    rank = cycle.nodes.index(name) * per_node + failure.local_rank
    path = worker_logs.file(folder, cycle.number, rank)
    lines = worker_logs.last_lines(path, LINES)
    return FailedLog(cycle.number, cycle.reason, rank, lines or kept, str(path.relative_to(folder)) if lines else "")

"""Measures what many restarts in the same processes leave there: threads, file descriptors, memory."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from ft_bench import job as jobs
from ft_bench import training
from ft_bench.report import Row
from ft_bench.seen import BenchError
from ft_bench.told import WorkerReport
from ft_bench.training import Mode

_PAUSE = 0.1, 0.3


def measure(quick: bool) -> list[Row]:
    """Measure one node's processes after the fifth restart and after the last one."""
    early, late = (1, 2) if quick else (5, 100)
    with jobs.folder() as path:
        job = training.start(path, 1, 1, Mode.IN_PROCESS)
        workers = first = _by_rank(job.workers.wait("step", training.PER_NODE))
        before: list[tuple[int, ...]] = []
        for restart in range(1, late + 1):
            raised = training.one_raises(workers, _PAUSE)
            workers = _by_rank(job.workers.wait("step", len(workers), raised))
            if [worker.pid for worker in workers] != [worker.pid for worker in first]:
                raise BenchError(f"restart {restart} was not in the same processes")
            if restart == early:
                before = [_usage(worker.pid) for worker in workers]
        after = [_usage(worker.pid) for worker in workers]
    what = f"{late} restarts in one process, more than after {early}: "
    names = (("threads", "", 0.0), ("file descriptors", "", 0.0), ("memory", "MiB", 10.0))
    return [
        Row(
            f"{what}{name}",
            unit,
            [float(new[i] - old[i]) for old, new in zip(before, after, strict=True)],
            None if quick else target,
            "p95",
        )
        for i, (name, unit, target) in enumerate(names)
    ]


def _by_rank(workers: Sequence[WorkerReport]) -> list[WorkerReport]:
    return sorted(workers, key=lambda worker: worker.rank)


def _usage(pid: int) -> tuple[int, int, int]:
    """Return how many threads, file descriptors and MiB of resident memory a process has."""
    process = psutil.Process(pid)
    return process.num_threads(), process.num_fds(), process.memory_info().rss >> 20

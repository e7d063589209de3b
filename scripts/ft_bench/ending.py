"""Measures a job's end when all workers exit with 0 at once: from the last one's exit to the last daemon's."""

from __future__ import annotations

import os
import signal

from ft_bench import job as jobs
from ft_bench.report import Row
from ft_bench.told import Exits


def measure(quick: bool) -> list[Row]:
    """Measure both. torchrun has no standbys, so it runs on the active nodes alone."""
    nodes, active = (3, 2) if quick else (8, 6)
    ours: list[float] = []
    torchrun: list[float] = []
    for repetition in range(1 if quick else 5):
        with jobs.folder() as path:
            ours.append(_end(jobs.start_local(path, nodes, active), active))
        if not quick and repetition < 3:  # in turns, so that both have the same neighbours on this machine
            with jobs.folder() as path:
                torchrun.append(_end(jobs.start_torchrun(path, active), active))
    what = f"last worker's exit to last daemon's exit, {nodes} nodes, {nodes - active} of them standby"
    return [Row(what, "s", ours, None if quick else 0.5, torchrun=torchrun)]


def _end(job: jobs.Job, active: int) -> float:
    workers = job.workers.wait("start", active)
    exits = Exits(job.pids)
    for worker in workers:
        os.kill(worker.pid, signal.SIGUSR1)
    exited = job.workers.wait("exit", active)
    return exits.last() - max(worker.time for worker in exited)

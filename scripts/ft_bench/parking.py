"""Measures N agents whose workers are parked: a worker fails, until the last one runs again. See rendezvous.py for the
name server."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from ft_bench import job as jobs
from ft_bench import joining
from ft_bench.report import Row
from ft_bench.seen import BenchError
from ft_bench.told import BOUND
from ft_supervisor.process.ports import free_port


def measure(quick: bool) -> list[Row]:
    """Measure failures one after the other in one job."""
    size, restarts = (32, 2) if quick else (1000, 10)
    with jobs.folder() as path:
        try:
            seconds, coordinator, agents = zip(*_restarts(size, restarts, path), strict=True)
        except TimeoutError:
            raise BenchError(f"{size} agents do not go on within {BOUND:g} s: {joining.last_lines(path)}") from None
    note = ", no name server" if joining.without_dns() else ""
    what = f"one of {size} agents' stub workers raises, all are parked: "
    return [
        Row(f"{what}the last runs again{note}", "s", seconds, None if quick else 1.5),
        Row(f"{what}the coordinator's CPU", "s", coordinator),
        Row(f"{what}all agents' CPU, here on one host", "s", agents),
    ]


def _restarts(size: int, restarts: int, path: Path) -> list[tuple[float, float, float]]:
    """Return the seconds of each restart, and the CPU seconds of the coordinator and of all agents meanwhile. Raises
    TimeoutError, and BenchError when a restart was not in process."""
    port = free_port(joining.HOST)
    job = joining.job(size, port, str(path), restarts=restarts)
    samples = []
    with (
        joining.coordinators(job, path) as (coordinator,),
        joining.joiners(1, size, port, path, restarts) as processes,
    ):
        joining.go(processes)
        joining.lines(processes, BOUND, path)  # all run
        for _ in range(restarts):
            joining.lines(processes, BOUND, path)  # all are steady
            time.sleep(random.uniform(0.5, 1.5))
            used = jobs.cpu(coordinator.pid), sum(jobs.cpu(process.pid) for process in processes)
            joining.go(processes, str(random.randrange(size)))
            told = [json.loads(line) for line in joining.lines(processes, BOUND, path)]
            if any(one["fresh"] for one in told):
                raise BenchError("a restart was not in process")
            samples.append(
                (
                    max(one["released"] for one in told) - max(one["began"] for one in told),
                    jobs.cpu(coordinator.pid) - used[0],
                    sum(jobs.cpu(process.pid) for process in processes) - used[1],
                )
            )
    return samples

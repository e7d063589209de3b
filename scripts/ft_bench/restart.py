"""Measures a restart of a training with torch: a worker is killed, until all workers have made their first new step.

With workers that start cold, and with warm ones (`workers.preload`), one after the other.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from ft_bench import job as jobs
from ft_bench.report import Row, median
from ft_bench.told import LogLine

_TRAINER = Path(__file__).with_name("trainer.py")
_PRELOAD = ("torch", "torch._dynamo")
_PER_NODE = 2


@dataclass
class _Samples:
    """Seconds; memory in MiB."""

    script: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def measure(quick: bool) -> list[Row]:
    """Measure cold and warm restarts, one after the other in the same minutes."""
    nodes, faults = (1, 1) if quick else (4, 3)
    cold, warm = _Samples(), _Samples()
    _run(nodes, faults, (), cold)
    _run(nodes, faults, _PRELOAD, warm)
    what = f"worker killed, {nodes * _PER_NODE} workers: "
    return [
        Row(f"{what}all scripts run again, cold", "s", cold.script),
        Row(f"{what}all scripts run again, warm", "s", warm.script),
        Row(f"{what}all have made a step, cold", "s", cold.step),
        Row(f"{what}all have made a step, warm", "s", warm.step, None if quick else median(cold.step) / 10),
        Row("memory of one warm worker", "MiB", warm.memory),
        Row("CPU time of one warm worker until it waits", "s", warm.cpu),
    ]


def _run(nodes: int, faults: int, preload: tuple[str, ...], samples: _Samples) -> None:
    with jobs.folder() as path:
        job = jobs.start_training(path, nodes, _PER_NODE, [sys.executable, str(_TRAINER)], preload)
        count = nodes * _PER_NODE
        workers = job.workers.wait("step", count)
        for _ in range(faults):
            if preload:
                samples.memory += [float(line.fields["memory_mib"]) for line in _all_wait(job, count, workers[0].time)]
                at_work = {worker.pid for worker in workers}
                samples.cpu += [jobs.cpu(pid) for pid in jobs.warm_workers() if pid not in at_work]
            time.sleep(random.uniform(0.5, 1.5))
            killed = jobs.kill(random.choice(workers).pid)
            started = job.workers.wait("start", count, killed)
            workers = job.workers.wait("step", count, killed)
            samples.script.append(max(worker.time for worker in started) - killed)
            samples.step.append(max(worker.time for worker in workers) - killed)


def _all_wait(job: jobs.Job, count: int, after: float) -> list[LogLine]:
    """Wait until each rank has a warm worker beside it. Return the log lines that tell so."""
    found = []
    for rank in range(_PER_NODE):
        found += job.logged("warm_worker_ready", count // _PER_NODE, after, local_rank=str(rank))
    return found

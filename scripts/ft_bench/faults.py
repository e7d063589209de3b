"""Measures the death of a worker: until the other nodes detect it, and until all workers run again.

One job has many faults, at random moments between two heartbeats. The workers end on SIGTERM at once.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from ft_bench import job as jobs
from ft_bench.report import Row, median


@dataclass
class _Samples:
    first_start: list[float] = field(default_factory=list)
    knowing: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)


def measure(quick: bool) -> list[Row]:
    """Measure both. torchrun's peers have detected it when their workers get SIGTERM: there is no earlier sign."""
    nodes = 3 if quick else 8
    ours, torchrun = _Samples(), _Samples()
    for _ in range(1 if quick else 3):
        _ours(nodes, 2 if quick else 10, ours)
    if not quick:
        _torchrun(nodes, 5, torchrun)
    start = median(ours.first_start)  # the same workers on the same machine, so that it is torchrun's as well
    what, real = f"worker killed, {nodes} nodes: ", not quick
    return [
        Row(
            f"{what}every other node's agent knows",
            "ms",
            [1000 * value for value in ours.knowing],
            50.0 if real else None,
            "p95",
            [1000 * value for value in torchrun.knowing],
        ),
        Row(
            f"{what}last new worker's exec, minus the first start",
            "s",
            [value - start for value in ours.again],
            0.3 if real else None,
            torchrun=[value - start for value in torchrun.again],
        ),
        Row(f"{what}last new worker's exec", "s", ours.again, torchrun=torchrun.again),
        Row(f"first start of {nodes} workers, from the decision to the last one's exec", "s", ours.first_start),
    ]


def _ours(nodes: int, faults: int, samples: _Samples) -> None:
    with jobs.folder() as path:
        job = jobs.start_local(path, nodes, nodes)
        workers = job.workers.wait("start", nodes)
        (decided,) = job.logged("cycle_started")
        samples.first_start.append(max(worker.time for worker in workers) - decided.time)
        for _ in range(faults):
            _pause()
            victim = random.choice(workers)
            killed = jobs.kill(victim.pid)
            workers = job.workers.wait("start", nodes, killed)
            samples.again.append(max(worker.time for worker in workers) - killed)
            # no node is replaced, so that ranks stay where they were
            own = f"node{victim.rank}"
            stopping = job.logged("stopping", nodes, killed, proc="agent")
            samples.knowing.append(max(line.time for line in stopping if line.fields["writer"] != own) - killed)


def _torchrun(nodes: int, faults: int, samples: _Samples) -> None:
    with jobs.folder() as path:
        job = jobs.start_torchrun(path, nodes)
        workers = job.workers.wait("start", nodes)
        for _ in range(faults):
            _pause()
            killed = jobs.kill(random.choice(workers).pid)
            told = job.workers.wait("term", nodes - 1, killed)
            samples.knowing.append(max(worker.time for worker in told) - killed)
            workers = job.workers.wait("start", nodes, killed)
            samples.again.append(max(worker.time for worker in workers) - killed)


def _pause() -> None:
    """Sleep for at least a heartbeat, and each time for another part of one."""
    time.sleep(random.uniform(0.5, 1.5))

"""Starts jobs of trainer.py, by ft-supervisor or by torchrun, and lets their workers fail."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from ft_bench import job as jobs
from ft_bench.told import LogLine, WorkerReport
from ft_supervisor.process import tree

PER_NODE = 2
_TRAINER = str(Path(__file__).with_name("trainer.py"))


class Mode(StrEnum):
    """How the workers are started again."""

    COLD = "cold"
    WARM = "warm"
    IN_PROCESS = "in process"


_KEYS: dict[Mode, dict[str, object]] = {
    Mode.COLD: {},
    Mode.WARM: {"preload": ["torch", "torch._dynamo"]},
    Mode.IN_PROCESS: {"restart": "in_process"},
}


def start(path: Path, nodes: int, active: int, mode: Mode, per_node: int = PER_NODE) -> jobs.Job:
    """Start `ft-supervisor local`. Return when all workers have made a step."""
    job = jobs.Job(path)
    command = [*_command(path), *(["restartable"] if mode is Mode.IN_PROCESS else [])]
    jobs.local(job, path, nodes, jobs.write_config(path, active, command, (0,), per_node, **_KEYS[mode]))
    job.workers.wait("step", active * per_node)
    job.pids = jobs.daemons(path)
    return job


def start_torchrun(path: Path, nodes: int) -> jobs.Job:
    """Start torchrun. Return when all workers have made a step."""
    job = jobs.Job(path)
    jobs.torchrun(job, path, nodes, PER_NODE, _command(path))
    job.workers.wait("step", nodes * PER_NODE)
    return job


def _command(path: Path) -> list[str]:
    return [sys.executable, _TRAINER, str(path / "workers")]


def one_raises(workers: Sequence[WorkerReport], pause: tuple[float, float] = (0.5, 1.5)) -> float:
    """Let one of these workers raise, after a pause in seconds of between and between. Return when, in seconds since
    the epoch."""
    time.sleep(random.uniform(*pause))  # never the same part of a heartbeat
    now = time.time()
    os.kill(random.choice(workers).pid, signal.SIGUSR1)
    return now


def warm_ready(job: jobs.Job, nodes: int, after: float) -> list[LogLine]:
    """Wait until each rank has a warm worker beside it. Return the log lines that tell so."""
    found = []
    for local_rank in range(PER_NODE):
        found += job.logged("warm_worker_ready", nodes, after, local_rank=str(local_rank))
    return found


def warm_workers() -> list[int]:
    """Return the pids of this process's jobs' warm workers, those that work for a cycle by now too."""
    found = []
    for pid in tree.descendants(os.getpid()):
        with suppress(OSError):
            if b"warm_start.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found

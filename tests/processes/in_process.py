"""Jobs whose workers can be parked, and tests' orders to these workers."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
from tests.processes.harness import CALM, Job

WORKER = str(Path(__file__).with_name("restartable_worker.py"))


def settings(
    *words: str,
    per_node: int = 2,
    timeouts: dict[str, str] | None = None,
    quiesce: str = "2s",
    max_restarts: int = 10,
    **workers: Any,
) -> dict[str, Any]:
    """Return a Job's settings."""
    command = [sys.executable, "-S", WORKER, *words]
    rule = {"match": "any", "action": "restart", "budget": {"max": max_restarts, "in_process": {"max": max_restarts}}}
    return {
        "job": {"workers": {"per_node": per_node, "command": command, "restart": "in_process", **workers}},
        "timeouts": {**(timeouts or CALM), "restart_grace": "1s", "stop_grace": "2s", "quiesce": quiesce},
        "raises": True,
        "policy": {"failures": [rule]},
    }


def tell(job: Job, rank: int, code: str, when: str = "do") -> None:
    """Have the worker of this rank run this code; see restartable_worker.py."""
    new = job.folder / "order.new"
    new.write_text(code)
    new.rename(job.folder / f"{when}-{rank}")


def pids(job: Job, ranks: Iterable[int], restart: int = 0) -> list[int]:
    """Wait until the function of all these ranks runs after so many restarts. Return their processes."""
    return [int(job.worker(rank, restart)["pid"]) for rank in ranks]


def usage(pid: int) -> tuple[int, int, int]:
    """Return how many threads, file descriptors and MiB of memory a process has."""
    process = psutil.Process(pid)
    return process.num_threads(), process.num_fds(), process.memory_info().rss >> 20


def succeed(job: Job, restarts: int) -> None:
    """Let all workers return."""
    job.finish()
    job.assert_end(0, "success", f"all workers of cycle 0.{restarts} exited with 0")

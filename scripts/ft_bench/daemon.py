"""Measures a node's costs: the daemon's memory, its time to start, and its share of a core while training goes on."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

from ft_bench import job as jobs
from ft_bench.report import Row
from ft_supervisor.process import tree


def measure(quick: bool) -> list[Row]:
    """Measure jobs of one node. torchrun is one process: it is compared with the daemon, and with all three of ours."""
    with ExitStack() as stack:
        ours = jobs.start_daemon(stack.enter_context(jobs.folder()))
        ours.workers.wait("start", 1)
        # In a folder of its own, left first: leaving one ends the processes of both.
        torchrun = jobs.start_torchrun(stack.enter_context(jobs.folder()), 1)
        torchrun.workers.wait("start", 1)
        (daemon,), (other,) = ours.pids, torchrun.pids
        children = [pid for pid, (_, name) in tree.descendants(daemon).items() if name.startswith("python")]
        shares, others = zip(*(_cpu_shares([daemon, other], 1.0 if quick else 10.0) for _ in range(3)), strict=True)
        worker = ours.workers.wait("start", 1)[0].pid
        resident = _resident(daemon)
        whole = resident + sum(_resident(pid) for pid in children if pid != worker)
        memory = [_resident(other)]
    starts = [(*_start(), _start_torchrun()) for _ in range(1 if quick else 5)]
    spawned, execs, torchrun_execs = zip(*starts, strict=True)
    return [
        Row("daemon: resident memory", "MB", [resident], 45.0, torchrun=memory),
        Row("daemon, agent and coordinator: resident memory", "MB", [whole], torchrun=memory),
        Row("daemon: CPU while training goes on, of a core", "%", shares, 0.3, torchrun=others),
        Row("daemon: exec to agent spawned", "s", spawned, 0.3),
        Row("daemon: exec to the worker's exec, 1 node", "s", execs, torchrun=torchrun_execs),
    ]


def _start() -> tuple[float, float]:
    """Return the seconds from the daemon's exec to its agent's, and to the worker's."""
    with jobs.folder() as path:
        began = time.time()
        job = jobs.start_daemon(path)
        (agent,) = job.logged("started", child="agent")
        (worker,) = job.workers.wait("start", 1)
        return agent.time - began, worker.time - began


def _start_torchrun() -> float:
    with jobs.folder() as path:
        began = time.time()
        (worker,) = jobs.start_torchrun(path, 1).workers.wait("start", 1)
        return worker.time - began


def _cpu_shares(pids: list[int], seconds: float) -> list[float]:
    """Return the per cent of a core that each process uses, over so many seconds."""
    before, began = [jobs.cpu(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return [100 * (jobs.cpu(pid) - used) / took for pid, used in zip(pids, before, strict=True)]


def _resident(pid: int) -> float:
    """Return the MB (10^6 bytes) of physical memory, including pages shared with others (proc(5), statm)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

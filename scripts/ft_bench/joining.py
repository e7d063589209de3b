"""Starts many agents in a few processes (joiner.py), and real coordinators for them to join.

It is a module of its own, because joiner.py loads torch.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from ft_bench.job import environ
from ft_bench.seen import BenchError
from ft_bench.told import BOUND
from ft_supervisor.core.protocol.model import Job, Memory, Node, Timeouts
from ft_supervisor.core.protocol.orders import Begin, Listening
from ft_supervisor.core.protocol.settings import DEFAULTS, Budget, InProcessBudget, RestartMode, Rule, Settings
from ft_supervisor.process.link import LINK_FD_ENV, Link, pair

RUN_ID = "1.0.0"
HOST = "127.0.0.1"
CALM = Timeouts(heartbeat=2.0, coordinator=10.0, fence=30.0, node_lost=40.0, agent=20.0)
"""Timeouts of agents that go on after they have joined. A thousand agents that beat twice a second would keep a few
cores busy, while in a job each has a host of its own. A takeover after broken connections waits for none of these."""
_MOST_PROCESSES = 8
"""The most processes, one for each core: each loads torch."""
_MOST_AGENTS = 250
"""The most agents in one process, if its memory allows: more threads would wait for one another, as in no real job."""

_NO_DNS = 'mount --bind /dev/null /etc/resolv.conf && exec "$@"'


@dataclass(frozen=True)
class Task:
    """The task of one process: run the agents `ranks` of `size`. The stores of the candidates listen on `port`.

    Without coordinators it is torch's c10d rendezvous. With two, or with restarts, the agents go on after they got
    their Run.
    """

    coordinators: int
    ranks: list[int]
    size: int
    port: int
    restarts: int = 0


def job(size: int, port: int, folder: str, coordinators: int = 1, restarts: int = 0) -> Job:
    """Return a job of so many nodes without spares, all of them on this machine. With restarts these are in process."""
    names = tuple(f"node{rank}" for rank in range(size))
    return Job(
        run_id=RUN_ID,
        nodes=names,
        hosts=tuple(address(rank) if rank < coordinators else "" for rank in range(size)),
        ports=(port,),
        run_folder=f"{folder}/run",
        local_folder=f"{folder}/local",
        active=size,
        per_node=1,
        command=("true",),
        candidates=tuple(range(coordinators)),
        timeouts=CALM if coordinators > 1 or restarts else Timeouts(),
        settings=_restarted(restarts) if restarts else DEFAULTS,
    )


def _restarted(times: int) -> Settings:
    budget = Budget(max=times, in_process=InProcessBudget(max=times))
    return replace(DEFAULTS, restart=RestartMode.IN_PROCESS, rules=(Rule(budget=budget),))


def address(rank: int) -> str:
    """Return the address on which this candidate's store listens."""
    return f"127.0.0.{1 + rank}"


@contextmanager
def coordinators(job: Job, path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the candidates' coordinators as their daemons do, and yield them once all of them listen."""
    processes, links = [], []
    try:
        with (path / "coordinators.log").open("wb") as log:
            for rank, host in enumerate(filter(None, job.hosts)):
                here, there = pair()
                links.append(Link(here))
                with there:
                    env = {**environ(), LINK_FD_ENV: str(there.fileno())}
                    line = [sys.executable, "-P", "-m", "ft_supervisor.coordinator"]
                    processes.append(subprocess.Popen(line, pass_fds=[there.fileno()], env=env, stderr=log))
                links[-1].send(Begin(replace(job, listen=host), Node(rank, job.nodes[rank], host), 1, Memory()))
        for link in links:
            said = link.receive(BOUND)
            while said is not None and not isinstance(said, Listening):
                said = link.receive(BOUND)
            if said is None:
                raise BenchError(f"a coordinator does not listen within {BOUND:g} s")
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for link in links:
            link.close()


@contextmanager
def joiners(count: int, size: int, port: int, path: Path, restarts: int = 0) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes with `size` agents in all, and yield them when they wait for `go`. `count`: coordinators."""
    shares = min(max(len(os.sched_getaffinity(0)), size // _MOST_AGENTS), _MOST_PROCESSES, size)
    with (path / "joiners.log").open("wb") as log:
        processes = [
            subprocess.Popen(
                [*without_dns(), *_command(Task(count, list(range(size))[first::shares], size, port, restarts))],
                env=environ(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            for first in range(shares)
        ]
    try:
        if set(lines(processes, BOUND, path)) != {"ready"}:
            raise BenchError(f"agents could not be started: {last_lines(path)}")
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def go(processes: Sequence[subprocess.Popen[str]], word: str = "go") -> None:
    """Let the agents begin, or tell all processes this word."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{word}\n")
        process.stdin.flush()


def lines(processes: Sequence[subprocess.Popen[str]], bound: float, path: Path) -> list[str]:
    """Return the next line of each process. Raises TimeoutError, and BenchError when one ends instead."""
    until = time.monotonic() + bound
    said = []
    for process in processes:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        if not readable:
            raise TimeoutError
        line = process.stdout.readline()
        if not line:
            raise BenchError(f"a process with agents has ended: {last_lines(path)}")
        said.append(line.strip())
    return said


def last_lines(path: Path) -> str:
    """Return the last lines of the logs of coordinators and agents."""
    logs = [path / name for name in ("coordinators.log", "joiners.log")]
    return " | ".join(line for log in logs if log.exists() for line in log.read_text().splitlines()[-3:])


def _command(task: Task) -> list[str]:
    return [sys.executable, "-P", "-m", "ft_bench.joiner", json.dumps(asdict(task))]


@cache
def without_dns() -> tuple[str, ...]:
    """Return the words before a command that hide the name server from it; none where the machine does not allow it."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    words = ("unshare", *user, "--mount", "sh", "-c", _NO_DNS, "sh")
    try:
        tried = subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return words if tried.returncode == 0 else ()

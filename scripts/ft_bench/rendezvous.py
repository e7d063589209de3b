"""N agents that join at one moment: from the first join to the last release.

torch looks up the peer's name at each connection, four times for an agent. So many questions at once from one machine
say more of its name server than of a job, whose nodes ask one by one: a lost packet is a second. So where namespaces
are allowed, the agents, torchrun's too, see an empty /etc/resolv.conf, and a look-up fails at once.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ft_bench import joining
from ft_bench.job import BOUND, environ, folder
from ft_bench.report import NO_TORCHRUN, Row, median
from ft_bench.seen import BenchError
from ft_supervisor.core.model import Memory, Node
from ft_supervisor.core.orders import Begin, Listening
from ft_supervisor.process.link import LINK_FD_ENV, Link, pair
from ft_supervisor.process.ports import bind_first, free_port

TARGETS = {128: 0.2, 1000: 2.0}
C10D_BOUND = 60.0
"""Seconds after which torch's rendezvous is given up."""
_MOST_PROCESSES = 8
"""One for each core, but no more: each loads torch."""

_NO_DNS = 'mount --bind /dev/null /etc/resolv.conf && exec "$@"'


def measure(quick: bool) -> list[Row]:
    """A row for each N, and one that compares the largest two."""
    sizes = (8, 32) if quick else (32, 128, 1000)
    rows: list[Row] = []
    for size in sizes:
        count = 1 if quick else 3 if size >= 1000 else 5
        samples = [ours(size) for _ in range(count)]
        note, torchrun = NO_TORCHRUN, []
        if rows and not rows[-1].torchrun:
            note = "not tried"  # the next smaller one took too long
        else:
            try:
                torchrun = [c10d(size) for _ in range(1 if size >= 128 else min(count, 3))]
            except TimeoutError:
                note = f"> {C10D_BOUND:g} s"
        what = f"rendezvous, N={size}" + (", no name server" if without_dns() else "")
        rows.append(Row(what, "s", samples, TARGETS.get(size), "median", torchrun, note))
    small, large = sizes[-2:]
    growth = [sample / median(rows[-2].samples) / (large / small) for sample in rows[-1].samples]
    target = None if quick else 1.0
    return [*rows, Row(f"rendezvous, time for an agent, N={large} by N={small}", "x", growth, target)]


def ours(size: int) -> float:
    """Seconds, with a coordinator as its daemon starts it."""
    with folder() as path, (path / "coordinator.log").open("wb") as log:
        here, there = pair()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ft_supervisor.coordinator"],
            pass_fds=[there.fileno()],
            env={**environ(), LINK_FD_ENV: str(there.fileno())},
            stderr=log,
        )
        there.close()
        link = Link(here)
        port = free_port()
        try:
            link.send(Begin(joining.job(size, port, str(path)), Node(0, "node0", joining.HOST), 0, Memory()))
            listening = link.receive(BOUND)
            if not isinstance(listening, Listening):
                raise BenchError(f"the coordinator says {listening} instead of Listening")
            return _joined(True, size, port, BOUND, path)
        except TimeoutError:
            told = (path / "coordinator.log").read_text().splitlines()[-3:]
            raise BenchError(f"{size} agents did not all get a Run within {BOUND:g} s: {told}") from None
        finally:
            process.kill()
            process.wait()
            link.close()


def c10d(size: int) -> float:
    """Seconds. Raises TimeoutError after C10D_BOUND."""
    from ft_supervisor.store import tcp  # torch, which no other bench needs here

    sock: socket.socket = bind_first(joining.HOST, [free_port(joining.HOST)])
    port = sock.getsockname()[1]
    store = tcp.serve(sock)
    try:
        with folder() as path:
            return _joined(False, size, port, C10D_BOUND, path)
    finally:
        del store


def _joined(is_ours: bool, size: int, port: int, bound: float, path: Path) -> float:
    """Start agents in several processes, let them go at once. Raises TimeoutError."""
    count = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES, size)
    shares = [list(range(size))[first::count] for first in range(count)]
    with (path / "joiners.log").open("wb") as log:
        processes = [
            subprocess.Popen(
                [*without_dns(), *joining.command(joining.Task(is_ours, ranks, size, port))],
                env=environ(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            for ranks in shares
        ]
    try:
        if set(_lines(processes, BOUND)) != {"ready"}:
            raise BenchError(f"agents could not be started: {(path / 'joiners.log').read_text()[-500:]}")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        times = [json.loads(line) for line in _lines(processes, bound)]
        return float(max(time["released"] for time in times) - min(time["began"] for time in times))
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@cache
def without_dns() -> tuple[str, ...]:
    """What to put before a command so that it finds no name server; nothing where the machine does not allow it."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    words = ("unshare", *user, "--mount", "sh", "-c", _NO_DNS, "sh")
    try:
        tried = subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return words if tried.returncode == 0 else ()


def _lines(processes: Sequence[subprocess.Popen[str]], bound: float) -> list[str]:
    """The next line of each. Raises TimeoutError, and BenchError when one ends instead."""
    until = time.monotonic() + bound
    lines = []
    for process in processes:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        if not readable:
            raise TimeoutError
        line = process.stdout.readline()
        if not line:
            raise BenchError("a process with agents has ended")
        lines.append(line.strip())
    return lines

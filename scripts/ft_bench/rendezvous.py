"""Measures N agents that join at one moment: from the first join to the last release.

torch looks up the peer's name at each connection, four times for an agent. So many requests at once from one machine
would measure its name server and not a job, whose nodes ask one by one: a lost packet costs a second. So where
namespaces are allowed, the agents, torchrun's too, see an empty /etc/resolv.conf, and a look-up fails at once.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from ft_bench import joining
from ft_bench.job import folder
from ft_bench.report import NO_TORCHRUN, Row, median
from ft_bench.seen import BenchError
from ft_bench.told import BOUND
from ft_supervisor.process.ports import bind_first, free_port

TARGETS = {128: 0.2, 1000: 2.0}
C10D_BOUND = 60.0
"""Seconds after which torch's rendezvous is given up."""


def measure(quick: bool) -> list[Row]:
    """Return a row for each N, and one that compares the largest two."""
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
        what = f"rendezvous, N={size}" + (", no name server" if joining.without_dns() else "")
        rows.append(Row(what, "s", samples, TARGETS.get(size), "median", torchrun, note))
    small, large = sizes[-2:]
    growth = [sample / median(rows[-2].samples) / (large / small) for sample in rows[-1].samples]
    target = None if quick else 1.0
    return [*rows, Row(f"rendezvous, time for an agent, N={large} by N={small}", "x", growth, target)]


def ours(size: int) -> float:
    """Return the seconds, with a coordinator as its daemon starts it."""
    port = free_port(joining.HOST)
    with folder() as path, joining.coordinators(joining.job(size, port, str(path)), path):
        try:
            return _joined(1, size, port, BOUND, path)
        except TimeoutError:
            raise BenchError(
                f"{size} agents did not all get a Run within {BOUND:g} s: {joining.last_lines(path)}"
            ) from None


def c10d(size: int) -> float:
    """Return the seconds with torch's rendezvous. Raises TimeoutError after C10D_BOUND."""
    from ft_supervisor.store import tcp  # torch, which no other bench needs here

    sock: socket.socket = bind_first(joining.HOST, [free_port(joining.HOST)])
    port = sock.getsockname()[1]
    store = tcp.serve(sock)
    try:
        with folder() as path:
            return _joined(0, size, port, C10D_BOUND, path)
    finally:
        del store


def _joined(coordinators: int, size: int, port: int, bound: float, path: Path) -> float:
    """Start agents in several processes, and let them go at once. Return the seconds. Raises TimeoutError."""
    with joining.joiners(coordinators, size, port, path) as processes:
        joining.go(processes)
        times = [json.loads(line) for line in joining.lines(processes, bound, path)]
        return float(max(time["released"] for time in times) - min(time["began"] for time in times))

"""`begin`: coordinators as processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.coordinator.coordinator_harness import RUN_ID, Begun, Coordinator

from ft_supervisor.core.protocol.model import Job, Memory, Node, Timeouts
from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.process.link import LINK_FD_ENV, Link, pair

CALM = Timeouts(heartbeat=0.1, coordinator=30.0, node_lost=60.0, close_grace=30.0)
"""Long enough for a machine on which much else runs."""

MAIN = "import runpy; runpy.run_module('ft_supervisor.coordinator', run_name='__main__')"


@pytest.fixture
def begin(tmp_path: Path, repository: Path) -> Iterator[Begun]:
    """Return begin(ports, infra_rank=, incarnation=, memory=): a coordinator of a job with three nodes, one of them
    active.

    `before`: Python code that its process runs first. `listen`: Job.listen, the node's own address where it is None.
    """
    started: list[Coordinator] = []

    def start(
        ports: tuple[int, ...],
        *,
        infra_rank: int = 0,
        incarnation: int = 1,
        memory: Memory = Memory(),  # noqa: B008 - frozen
        timeouts: Timeouts = CALM,
        before: str = "",
        listen: str | None = None,
    ) -> Coordinator:
        hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
        job = Job(
            run_id=RUN_ID,
            nodes=("n0", "n1", "n2"),
            hosts=hosts,
            listen=hosts[infra_rank] if listen is None else listen,
            ports=ports,
            run_folder=str(tmp_path / "shared" / RUN_ID),
            local_folder=str(tmp_path / f"local{infra_rank}"),
            active=1,
            per_node=1,
            command=("true",),
            timeouts=timeouts,
            nonce="abc",
        )
        ours, theirs = pair()
        stderr = tmp_path / f"stderr{len(started)}"
        with stderr.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"{before}\n{MAIN}"],
                pass_fds=[theirs.fileno()],
                stderr=file,
                env={
                    **os.environ,
                    LINK_FD_ENV: str(theirs.fileno()),
                    "PYTHONPATH": f"{repository}/supervisor:{repository}/slurm",
                },
            )
        theirs.close()
        coordinator = Coordinator(process, Link(ours), job, job.hosts[infra_rank], stderr)
        started.append(coordinator)
        node = Node(infra_rank, f"n{infra_rank}", job.hosts[infra_rank])
        coordinator.link.send(Begin(job, node, incarnation, memory))
        return coordinator

    yield start
    for coordinator in started:
        coordinator.end()


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """Return a port of this machine on which another socket listens."""
    with socket.socket() as sock:
        sock.bind(("", 0))
        sock.listen()
        yield sock

"""What workers that have left their functions have left, as the agent sees it from outside."""

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from tests.agent.harness import run

from ft_supervisor.agent import leftovers
from ft_supervisor.agent.control import Control, Said
from ft_supervisor.agent.restartable import Restartable
from ft_supervisor.agent.worker_evidence import WorkerEvidence
from ft_supervisor.core.agent.node_workers import NodeWorkers
from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.process import tree

CYCLE = Cycle(0, 1)


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    """Eight processes."""
    processes = [subprocess.Popen(["sleep", "1000"]) for _ in range(8)]
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.wait()


def below(parents: Mapping[int, int]) -> dict[int, tree.Process]:
    """Return a scan with these pids, by their parents'."""
    return {pid: tree.Process(parent, "S", f"p{pid}", pid, dead=False) for pid, parent in parents.items()}


def test_strays() -> None:
    scan = below({10: 1, 11: 10, 12: 11, 13: 10, 20: 1, 21: 20, 22: 20, 23: 22})
    assert leftovers.strays(scan, 10, 10, frozenset(), [13]) == "11 (p11), 12 (p12)"
    assert leftovers.strays(scan, 10, 10, frozenset(), [11, 13]) == ""
    # a shell, 20, that has started a tee, 21, beside the worker, 22
    assert leftovers.strays(scan, 20, 22, frozenset({(21, 21)}), [23]) == ""
    assert leftovers.strays(scan, 20, 22, frozenset({(21, 7)}), []) == "21 (p21), 23 (p23)"


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_connection(family: socket.AddressFamily, host: str, sleepers: list[int]) -> None:
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        everybody = [*sleepers, os.getpid()]
        assert leftovers.connected_to(port, everybody) == set()
        with socket.create_connection((host, port)) as connection:
            assert leftovers.connected_to(port, everybody) == {os.getpid()}
            assert leftovers.connected_to(port, sleepers) == set()
            connection.shutdown(socket.SHUT_RDWR)  # of no use to anybody
            assert leftovers.connected_to(port, everybody) == set()


def test_all_workers_are_looked_at_by_one_scan(monkeypatch: pytest.MonkeyPatch, sleepers: list[int]) -> None:
    """A scan of /proc takes tens of milliseconds on a big machine."""
    machine, scans, scan = NodeWorkers(10.0), 0, tree.scan

    def counted() -> dict[int, tree.Process]:
        nonlocal scans
        scans += 1
        return scan()

    monkeypatch.setattr(tree, "scan", counted)
    restartable = Restartable(machine, Control(lambda: None), cast(WorkerEvidence, None), 2**30)
    machine.start(CYCLE, fresh=False)
    machine.started(range(8))
    restartable.begin(run(CYCLE))
    for kind in ("hello", "quiesced", "parked"):
        if kind == "quiesced":
            machine.stop(CYCLE, 10.0, "SIGTERM", 0.0, park=True)
        for local_rank, pid in enumerate(sleepers):
            message: dict[str, Any] = {
                "type": kind,
                "kind": "restartable",
                "cycle": str(CYCLE),
                "threads": [],
                "kept": [],
            }
            restartable.hear(local_rank, Said(pid, pid, message), 0.0)
    restartable.look(0.0)
    assert machine.parked == tuple(range(8))
    assert scans == 1

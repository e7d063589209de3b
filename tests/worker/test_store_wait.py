"""A process group is made once rank 0's store listens: torch's own next attempt would come half a second later."""

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from torch.distributed.rendezvous import rendezvous

from ft_supervisor.process.ports import free_port
from ft_supervisor.worker import store_wait
from ft_supervisor.worker.leaving import LEAVING, Restart

HOST = "127.0.0.1"


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((HOST, port)) == 0


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Have env:// note whether rank 0's store listens at each call."""
    seen: list[bool] = []

    def handler(_url: str, **_: Any) -> Any:
        seen.append(listens(int(os.environ["MASTER_PORT"])))
        yield None, 1, 2

    monkeypatch.setitem(sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers, "env", handler)
    store_wait.install()
    store_wait.install()  # once is enough
    monkeypatch.setenv("MASTER_ADDR", HOST)
    monkeypatch.setenv("MASTER_PORT", str(free_port(HOST)))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "256")
    yield seen


def look() -> None:
    next(rendezvous("env://"))


def test_a_rank_waits_until_the_store_listens(found: list[bool]) -> None:
    port, servers = int(os.environ["MASTER_PORT"]), []
    timer = threading.Timer(0.3, lambda: servers.append(socket.create_server((HOST, port))))
    timer.start()
    look()
    assert found == [True]
    timer.join()
    servers[0].close()


@pytest.mark.parametrize(("name", "value"), [("RANK", "0"), ("WORLD_SIZE", "257")])
def test_rank_0_and_large_worlds_do_not_wait(
    found: list[bool], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    look()
    assert found == [False]


def test_the_wait_is_bounded() -> None:
    began = time.monotonic()
    store_wait.wait(HOST, free_port(HOST), 0.1)
    assert time.monotonic() >= began + 0.1


def test_the_wait_ends_with_the_cycle(found: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LEAVING, "inside", True)
    monkeypatch.setattr(LEAVING, "due", True)
    with pytest.raises(Restart):
        look()
    assert found == []

"""A process group is made once rank 0's store listens: torch's own next attempt would come half a second later."""

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
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


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Have env:// note the timeout of each attempt to reach a store that cannot be reached."""
    seen: list[float] = []

    def handler(_url: str, timeout: timedelta, **_: Any) -> Any:
        seen.append(timeout.total_seconds())
        if seen:
            raise torch.distributed.DistNetworkError("no store there")
        yield None, 1, 2

    monkeypatch.setitem(sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers, "env", handler)
    store_wait.install()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(store_wait, "_ATTEMPT", 0.01)
    monkeypatch.setenv("WORLD_SIZE", "1000")  # no look at the port
    yield seen


def test_attempts_take_longer_and_longer_until_the_timeout(begun: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 1.0, 2.0, 3.0, 3.97])
    monkeypatch.setattr(store_wait, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(torch.distributed.DistNetworkError, match="no store there"):
        next(rendezvous("env://", timeout=timedelta(seconds=4)))
    assert begun == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.03])


@pytest.mark.parametrize(("rank", "named"), [("0", -1), ("1", 0)])
def test_a_rank_that_may_serve_the_store_waits_for_the_others(
    begun: list[float], monkeypatch: pytest.MonkeyPatch, rank: str, named: int
) -> None:
    monkeypatch.setenv("RANK", rank)
    with pytest.raises(torch.distributed.DistNetworkError):
        next(rendezvous("env://", rank=named, timeout=timedelta(seconds=4)))
    assert begun == [4.0]


def test_a_store_that_is_not_made_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, release = threading.Event(), threading.Event()

    def handler(_url: str, **_: Any) -> Any:
        entered.set()
        LEAVING.due = True
        release.wait(60)
        yield None, 0, 1

    monkeypatch.setitem(sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers, "env", handler)
    store_wait.install()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(LEAVING, "inside", True)
    monkeypatch.setattr(LEAVING, "due", False)
    with pytest.raises(Restart):
        look()
    assert entered.is_set() and store_wait.is_pending()
    release.set()
    while store_wait.is_pending():
        time.sleep(0.01)

"""A real coordinator with its real store, a scripted agent, and the test as its daemon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ft_supervisor.core import messages
from ft_supervisor.core.codec import decode, encode
from ft_supervisor.core.model import Cycle, Job, Memory, Node, Outcome, Timeouts, Verdict
from ft_supervisor.core.orders import Begin, Closed, Done, Listening, Order
from ft_supervisor.observe import verdict_file
from ft_supervisor.process.link import LINK_FD_ENV, Link, pair
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.tcp import TcpStore, connect
from ft_supervisor.store.verdicts import parse_verdict

BOUND = 60.0
KEYS = Keys("7.0.0")
NODE = Node(0, "n0", "127.0.0.1")
SUCCESS = Verdict(Outcome.SUCCESS, "all workers of cycle 0.0 exited with 0")


@dataclass
class Coordinator:
    """The process, and our end of its link."""

    process: subprocess.Popen[bytes]
    link: Link
    folder: Path

    def says(self) -> Order:
        """The next thing that it tells its daemon."""
        order = self.link.receive(BOUND)
        assert order is not None, "the coordinator says nothing"
        return order

    def connect(self) -> TcpStore:
        """A connection to its store, as soon as it listens."""
        order = self.says()
        assert isinstance(order, Listening), order
        return connect("127.0.0.1", order.port, BOUND)


Begun = Callable[[tuple[int, ...]], Coordinator]


@pytest.fixture
def begin(tmp_path: Path, repository: Path) -> Iterator[Begun]:
    """begin(ports): a coordinator of a job with one active node and one standby."""
    started: list[Coordinator] = []

    def start(ports: tuple[int, ...]) -> Coordinator:
        job = Job(
            run_id="7.0.0",
            nodes=("n0", "n1"),
            hosts=("127.0.0.1",),
            ports=ports,
            run_folder=str(tmp_path / "shared" / "7.0.0"),
            local_folder=str(tmp_path / "local"),
            active=1,
            per_node=1,
            command=("true",),
            # long enough for a machine on which much else runs
            timeouts=Timeouts(heartbeat=0.1, coordinator=30.0, node_lost=60.0, close_grace=30.0),
            nonce="abc",
        )
        ours, theirs = pair()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ft_supervisor.coordinator"],
            pass_fds=[theirs.fileno()],
            env={
                **os.environ,
                LINK_FD_ENV: str(theirs.fileno()),
                "PYTHONPATH": f"{repository}/supervisor:{repository}/slurm",
            },
        )
        theirs.close()
        coordinator = Coordinator(process, Link(ours), Path(job.run_folder))
        started.append(coordinator)
        coordinator.link.send(Begin(job, NODE, 0, Memory()))
        return coordinator

    yield start
    for coordinator in started:
        coordinator.link.close()
        coordinator.process.kill()
        coordinator.process.wait()


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A port of this machine that somebody else listens on."""
    with socket.socket() as sock:
        sock.bind(("", 0))
        sock.listen()
        yield sock


def register(store: TcpStore, infra_rank: int) -> None:
    node = Node(infra_rank, f"n{infra_rank}", "127.0.0.1")
    store.push(KEYS.inbox, encode(messages.Register(0, node, 1, 7, 20100 + infra_rank, None, Memory())))


def mail(store: TcpStore, infra_rank: int = 0) -> messages.ToAgent:
    data = store.pop(KEYS.mail(infra_rank, 1), BOUND)
    assert data is not None, "no mail came"
    message: messages.ToAgent = decode(data, messages.TO_AGENT)
    return message


def goodbye(store: TcpStore) -> None:
    for infra_rank in (0, 1):
        store.push(KEYS.inbox, encode(messages.Goodbye(0, infra_rank, 1)))


def held(store: TcpStore) -> Verdict:
    data = store.get(KEYS.permanent_close)
    assert data is not None
    return parse_verdict(data)


def test_a_job_from_the_first_register_to_the_verdict(begin: Begun, free_port: Callable[[], int]) -> None:
    coordinator = begin((free_port(),))
    store = coordinator.connect()
    hello = store.get(KEYS.hello)
    assert hello is not None
    assert json.loads(hello) == {"run_id": "7.0.0", "protocol": 1, "infra_rank": 0}
    for garbage in (b"", b"\xff\x00", b'{"type": "Register"}', b"x" * 100_000, b"[" * 60_000):
        store.push(KEYS.inbox, garbage)
    for infra_rank in (0, 1):
        register(store, infra_rank)
        assert mail(store, infra_rank) == messages.Standby(0, None)
    run = mail(store)
    assert isinstance(run, messages.Run)
    assert (run.cycle, run.group_rank, run.group_world_size, run.connection) == (Cycle(0, 0), 0, 1, 7)
    assert (run.master_addr, run.master_port) == ("127.0.0.1", 20100)
    assert mail(store, 1) == messages.Standby(0, Cycle(0, 0))
    lease = store.add(KEYS.lease(0), 0)
    deadline = time.monotonic() + BOUND
    while store.add(KEYS.lease(0), 0) < lease + 3:  # it moves by itself
        assert time.monotonic() < deadline
    store.push(KEYS.inbox, encode(messages.WorkersSucceeded(0, 0, 1, Cycle(0, 0))))
    assert mail(store) == mail(store, 1) == messages.Close(0, SUCCESS)
    assert held(store) == SUCCESS
    assert coordinator.says() == Closed(SUCCESS)
    goodbye(store)
    assert coordinator.says() == Done(0, SUCCESS, SUCCESS.reason)
    assert coordinator.process.wait(BOUND) == 0
    assert verdict_file.read(coordinator.folder, "7.0.0", "abc") == SUCCESS


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (b'{"outcome": "cancelled", "reason": "enough"}', Verdict(Outcome.CANCELLED, "enough")),
        (b"stop!", Verdict(Outcome.FAILED, "stop!")),
    ],
)
def test_anybody_may_end_the_job_by_permanent_close(
    begin: Begun, taken: socket.socket, free_port: Callable[[], int], value: bytes, verdict: Verdict
) -> None:
    port = free_port()
    coordinator = begin((taken.getsockname()[1], port))  # the first port being somebody else's
    store = coordinator.connect()
    register(store, 1)
    assert mail(store, 1) == messages.Standby(0, None)
    store.set(KEYS.permanent_close, value)
    assert mail(store, 1) == messages.Close(0, verdict)
    assert coordinator.says() == Closed(verdict)
    # Who comes late hears it as well.
    register(store, 0)
    assert mail(store) == messages.Close(0, verdict)
    goodbye(store)
    assert coordinator.says() == Done(verdict.exit_code, verdict, verdict.reason)
    assert coordinator.process.wait(BOUND) == verdict.exit_code
    assert verdict_file.read(coordinator.folder, "7.0.0", "abc") == verdict


def test_no_free_port_is_a_verdict_in_the_file(begin: Begun, taken: socket.socket) -> None:
    port = taken.getsockname()[1]
    coordinator = begin((port,))
    closed = coordinator.says()
    assert isinstance(closed, Closed)
    assert closed.verdict.outcome is Outcome.INTERRUPTED
    assert str(port) in closed.verdict.reason
    assert coordinator.says() == Done(75, closed.verdict, closed.verdict.reason)
    assert coordinator.process.wait(BOUND) == 75
    assert verdict_file.read(coordinator.folder, "7.0.0", "abc") == closed.verdict


def test_it_ends_when_its_daemon_does(begin: Begun, free_port: Callable[[], int]) -> None:
    coordinator = begin((free_port(),))
    coordinator.connect()
    coordinator.link.close()
    assert coordinator.process.wait(BOUND) == 75


def test_it_ends_when_its_daemon_does_before_it_began(begin: Begun) -> None:
    coordinator = begin((1,))
    coordinator.link.close()
    assert coordinator.process.wait(BOUND) == 75

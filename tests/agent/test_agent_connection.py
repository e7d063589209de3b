"""The wire between a main loop, which is the test's, and real stores that die and freeze."""

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

import pytest
from tests.agent.harness import BOUND, NODE, RUN_ID, Nursery, Scripted, job, listen, port_of, standby, wait_until

from ft_supervisor.agent import connection, wire
from ft_supervisor.agent.connection import FromWire, Generation
from ft_supervisor.agent.dial import Dialer, FoundStore
from ft_supervisor.agent.wire import Wire
from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.actions import Pulse
from ft_supervisor.core.protocol.events import (
    AgentEvent,
    BarrierPassed,
    CloseHeld,
    Connected,
    Disconnected,
    Looked,
    Mailed,
)
from ft_supervisor.core.protocol.messages import TO_COORDINATOR, ToldToEnd
from ft_supervisor.core.protocol.model import Cycle, Job, Outcome, Timeouts, Verdict
from ft_supervisor.process import clock
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.memory import MemoryStore
from ft_supervisor.store.pulses import dump_pulse
from ft_supervisor.store.verdicts import dump_verdict

INCARNATION = 3
KEYS = Keys(RUN_ID)
T = TypeVar("T", bound=AgentEvent)


class Loop:
    """A main loop, like the one in the agent's shell."""

    def __init__(self, job: Job) -> None:
        self.queue: SimpleQueue[FromWire] = SimpleQueue()
        self.wire = Wire(job, NODE, INCARNATION, self.queue.put)
        self._beat = job.timeouts.heartbeat

    def events(self) -> list[AgentEvent]:
        """Return the events that come within a heartbeat."""
        now = clock.now()
        if events := self.wire.judge(now):
            return events
        try:
            item = self.queue.get(timeout=max(0.0, min(self._beat, (self.wire.due or now + self._beat) - now)))
        except Empty:
            return []
        return self.wire.receive(item, clock.now())

    def expect(self, kind: type[T], where: Callable[[T], bool] = lambda _: True) -> T:
        """Return the next event of this kind; others before it are dropped."""
        until = clock.now() + BOUND
        while clock.now() < until:
            for event in self.events():
                if isinstance(event, kind) and where(event):
                    return event
        raise AssertionError(f"no {kind.__name__}")


@pytest.fixture
def loop_of() -> Iterator[Callable[[Job], Loop]]:
    """Return a function that makes main loops, whose connections end with the test."""
    loops: list[Loop] = []

    def make(job: Job) -> Loop:
        loops.append(Loop(job))
        return loops[-1]

    yield make
    for loop in loops:
        loop.wire._abandon()


def of(folder: Path, *ports: int, timeouts: Timeouts | None = None) -> Job:
    """Return a job whose timeouts never run out, unless given."""
    settings = job(folder, *ports, command=["true"])
    return settings if timeouts is None else replace(settings, timeouts=timeouts)


def heartbeat(coordinator: Scripted, number: int) -> int:
    """Return the round that this connection has echoed last."""
    return int(coordinator.store.get(KEYS.heartbeat(NODE.infra_rank, INCARNATION, number)) or b"0")


def threads_of(number: int) -> int:
    """Return how many of this connection's threads live."""
    return sum(thread.name in (f"wire {number}", f"mail {number}") for thread in threading.enumerate())


LoopOf = Callable[[Job], Loop]


def test_no_port_to_be_had_is_a_lost_connection(
    loop_of: LoopOf, coordinator: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without file descriptors, for example, the agent dials again, and lives."""

    def refuse(host: str, avoid: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    loop = loop_of(of(tmp_path, coordinator.port))
    with monkeypatch.context() as patch:
        patch.setattr(wire, "free_port", refuse)
        loop.wire.dial((0, 1))
        lost = loop.expect(Disconnected)
    assert lost.reason == "no port for workers: [Errno 24] Too many open files" and loop.wire.address is None
    loop.wire.dial((0, 1))
    assert loop.expect(Connected).connection == 2


def test_what_a_connection_tells(loop_of: LoopOf, coordinator: Scripted, tmp_path: Path) -> None:
    loop, cycle = loop_of(of(tmp_path, coordinator.port)), Cycle(0, 4)
    began = clock.now()
    loop.wire.dial((0, 1))
    connected = loop.expect(Connected)
    assert (connected.candidate, connected.connection) == (0, 1)
    assert connected.port > 1024 and connected.round >= 1 and began <= connected.asked <= clock.now()
    assert loop.wire.address == ("127.0.0.1", coordinator.port)
    looked = loop.expect(Looked)
    assert looked.round >= connected.round and looked.term == 0 and looked.lease == looked.round - 1
    assert connected.asked <= looked.asked <= clock.now()
    assert loop.expect(Looked, lambda later: later.round > looked.round).asked > looked.asked
    wait_until(lambda: heartbeat(coordinator, 1) > looked.round, "a later round's echo")
    loop.wire.watch(cycle)
    coordinator.store.set(KEYS.barrier_done(cycle), b"1")
    assert loop.expect(BarrierPassed).cycle == cycle
    coordinator.store.push(KEYS.mail(NODE.infra_rank, INCARNATION, 1), codec.encode(standby()))
    assert loop.expect(Mailed).message == standby()
    told = ToldToEnd(0, 1, INCARNATION, "SIGTERM")
    loop.wire.send(told)
    assert loop.wire.flush(BOUND)
    data = coordinator.store.pop(KEYS.inbox, 0)
    assert data is not None and codec.decode(data, TO_COORDINATOR) == told
    verdict = Verdict(Outcome.FAILED, "x")
    coordinator.store.set(KEYS.permanent_close, dump_verdict(verdict))
    assert loop.expect(CloseHeld).verdict == verdict


def test_a_lost_store_is_told_at_once_and_nothing_follows(
    loop_of: LoopOf, coordinator: Scripted, tmp_path: Path
) -> None:
    loop = loop_of(of(tmp_path, coordinator.port))
    loop.wire.dial((0,))
    loop.expect(Looked)
    coordinator.kill()
    assert not loop.expect(Disconnected).silent  # the bound is that of a silence
    wait_until(lambda: threads_of(1) == 0, "the end of its threads")
    assert loop.wire.address is None and loop.wire.due is None
    assert not loop.wire.flush(BOUND)
    while not loop.queue.empty():  # what the threads still said
        assert loop.events() == []


def test_a_frozen_store_is_silent_when_due_not_a_heartbeat_later(
    loop_of: LoopOf, coordinator: Scripted, tmp_path: Path
) -> None:
    loop = loop_of(of(tmp_path, coordinator.port, timeouts=Timeouts(heartbeat=2.0, coordinator=2.5)))
    loop.wire.dial((0,))
    looked = loop.expect(Looked)
    wait_until(lambda: heartbeat(coordinator, 1) == looked.round, "the echo")
    assert coordinator.store.get(KEYS.hello)  # so the look that began before is over too
    os.kill(coordinator.pid, signal.SIGSTOP)
    try:
        assert loop.expect(Disconnected).silent
        assert 2.5 <= clock.now() - looked.asked < 3.7  # with the next heartbeat it were 4
        assert loop.wire.due is None
    finally:
        os.kill(coordinator.pid, signal.SIGCONT)


def test_a_slow_main_loop_is_not_the_stores_silence(loop_of: LoopOf, coordinator: Scripted, tmp_path: Path) -> None:
    loop = loop_of(of(tmp_path, coordinator.port, timeouts=Timeouts(heartbeat=0.1, coordinator=0.5)))
    loop.wire.dial((0,))
    asked = loop.expect(Looked).asked
    os.kill(coordinator.pid, signal.SIGSTOP)
    wait_until(lambda: clock.now() > asked + 1.0, "a second without a look at the clock")
    os.kill(coordinator.pid, signal.SIGCONT)
    assert loop.wire.judge(clock.now()) == []
    loop.expect(Looked, lambda looked: looked.asked > asked + 1.0)


def test_each_dial_is_a_connection_of_its_own(loop_of: LoopOf, coordinator: Scripted, tmp_path: Path) -> None:
    loop = loop_of(of(tmp_path, coordinator.port))
    loop.wire.dial((0,))
    loop.expect(Looked)
    loop.wire.dial((0,))
    assert loop.wire.address is None
    coordinator.store.push(KEYS.mail(NODE.infra_rank, INCARNATION, 1), codec.encode(standby(Cycle(0, 1))))
    coordinator.store.push(KEYS.mail(NODE.infra_rank, INCARNATION, 2), codec.encode(standby(Cycle(0, 2))))
    assert loop.expect(Connected).connection == 2
    assert loop.expect(Mailed).message == standby(Cycle(0, 2))
    wait_until(lambda: heartbeat(coordinator, 2) > 0, "the echo")
    wait_until(lambda: threads_of(1) == 0, "the end of the former one's threads, though its store lives")
    former = heartbeat(coordinator, 1)
    wait_until(lambda: heartbeat(coordinator, 2) > former + 10, "later echoes")
    assert heartbeat(coordinator, 1) == former


def test_a_store_that_starts_anew_on_another_port(nursery: Nursery, loop_of: LoopOf, tmp_path: Path) -> None:
    first, later = Scripted(nursery, tmp_path, listen()), socket.socket()
    later.bind(("127.0.0.1", 0))  # and refuses as yet
    loop = loop_of(of(tmp_path, first.port, port_of(later)))
    loop.wire.dial((0,))
    loop.expect(Looked)
    first.kill()
    loop.expect(Disconnected)
    loop.wire.dial((0, 1))
    later.listen()
    second = Scripted(nursery, tmp_path, later)
    connected = loop.expect(Connected)
    assert (connected.connection, loop.wire.address) == (2, ("127.0.0.1", second.port))
    wait_until(lambda: heartbeat(second, 2) > 0, "the echo")


def test_a_frozen_host_that_goes_on_finds_nobody_there(
    nursery: Nursery, loop_of: LoopOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_POP", 10 * BOUND)  # an abandoned wait for mail is ended, not waited for
    sockets = listen(), listen()
    frozen, other = Scripted(nursery, tmp_path, sockets[0]), Scripted(nursery, tmp_path, sockets[1], {"infra_rank": 1})
    loop = loop_of(of(tmp_path, other.port, frozen.port, timeouts=Timeouts(heartbeat=0.2, coordinator=1.5)))
    loop.wire.dial((0,))
    loop.expect(Looked)
    os.kill(frozen.pid, signal.SIGSTOP)
    assert loop.expect(Disconnected).silent
    loop.wire.dial((1,))
    assert loop.expect(Connected).candidate == 1
    os.kill(frozen.pid, signal.SIGCONT)
    wait_until(lambda: threads_of(1) == 0, "the end of the abandoned threads")
    while not loop.queue.empty():
        assert all(isinstance(event, Looked) for event in loop.events())
    assert loop.wire.address == ("127.0.0.1", other.port)


class Leads:
    """A dialer that has found this store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def dial(self, candidates: object, abandoned: threading.Event, _differs: object) -> FoundStore | None:
        """Return the store at once."""
        return FoundStore(0, ("127.0.0.1", 1), self._store, self._store.clone(), clock.now(), 1)


@pytest.mark.parametrize("abandoned", [False, True])
def test_no_echo_of_a_round_that_was_read_after_the_end(
    abandoned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of a round and its echo, the main loop turns to another coordinator."""
    store, posted = MemoryStore(), SimpleQueue[FromWire]()
    store.set(KEYS.pulse, dump_pulse(Pulse(7, 0, 6), time.time()))
    reading, go_on = threading.Event(), threading.Event()
    get = MemoryStore.get

    def slow(self: MemoryStore, key: str) -> bytes | None:
        if key == KEYS.pulse and not reading.is_set():
            reading.set()
            assert go_on.wait(BOUND)
        return get(self, key)

    monkeypatch.setattr(MemoryStore, "get", slow)
    dialer: Dialer = Leads(store)  # type: ignore[assignment]
    generation = Generation(1, (0,), of(tmp_path, 1), NODE, INCARNATION, dialer, posted.put)
    assert reading.wait(BOUND)
    if abandoned:
        generation.abandon()
    go_on.set()
    key = KEYS.heartbeat(NODE.infra_rank, INCARNATION, 1)
    if not abandoned:
        wait_until(lambda: store.get(key) == b"7", "the echo")
        generation.abandon()
    wait_until(lambda: threads_of(1) == 0, "the end of the threads")
    assert store.get(key) == (None if abandoned else b"7")

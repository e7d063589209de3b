"""The agent's two connections to its coordinator's store, and their replacement when they are gone or silent.

A Generation is one connecting and what came of it: a thread that beats, sends and looks, and one that waits for mail.
No call to a store keeps its timeout against a frozen host, so the main loop judges silence by its own clock, abandons
the generation with its threads, and begins another. What an abandoned generation still says changes nothing.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from ft_supervisor.agent.dial import Dialer
from ft_supervisor.core import codec
from ft_supervisor.core.events import AgentEvent, BarrierPassed, Connected, Disconnected, Ended, LeaseMoved, Mailed
from ft_supervisor.core.messages import TO_AGENT, ToCoordinator
from ft_supervisor.core.model import TERM, Cycle, Job, Node
from ft_supervisor.process.log import log
from ft_supervisor.process.ports import free_port
from ft_supervisor.store.base import Store, StoreLost
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.verdicts import parse_verdict

_BACKOFF = (0.05, 0.5)
"""Seconds between attempts to connect: the first, doubled up to the second."""
_POP = 10.0
"""Seconds that one wait for mail lasts: how long an abandoned one may stay in the queue's way, at most."""


@dataclass(frozen=True)
class Up:
    """A generation is connected."""


@dataclass(frozen=True)
class FromWire:
    """What a generation's threads say to the main loop."""

    generation: int
    event: AgentEvent | Up


Post = Callable[[FromWire], None]


class Wire:
    """For the main loop alone; the threads below it only ever `post`."""

    def __init__(self, job: Job, node: Node, incarnation: int, post: Post) -> None:
        self._job = job
        self._begin: Callable[[int], Generation] = lambda number: Generation(
            number, job, node, incarnation, Dialer(job, job.timeouts.coordinator), post
        )
        self._current = self._begin(1)
        self._up = False
        self._beats = 0
        self._silent = 0.0
        self._judged = time.monotonic()
        self._watched: Cycle | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the store; None without a connection."""
        return self._current.address if self._up else None

    def watch(self, cycle: Cycle | None) -> None:
        """Whose exit barrier to look at: BarrierPassed follows."""
        self._watched = self._current.watched = cycle

    def receive(self, item: FromWire) -> list[AgentEvent]:
        """The events for the machine in what the threads posted."""
        if item.generation != self._current.number:
            return []
        if isinstance(item.event, Up):
            self._up, self._silent = True, 0.0
            return [Connected(free_port("", avoid=self._job.ports))]
        if isinstance(item.event, Disconnected):
            self._renew()
        return [item.event]

    def tick(self, now: float) -> list[AgentEvent]:
        """Judge silence; every heartbeat. Time in which this loop itself stood still is not held against the store."""
        elapsed = min(now - self._judged, 2 * self._job.timeouts.heartbeat)
        self._judged = now
        if not self._up or self._current.beats != self._beats:
            self._beats, self._silent = self._current.beats, 0.0
            return []
        self._silent += elapsed
        if self._silent <= self._job.timeouts.coordinator:
            return []
        self._renew()
        return [Disconnected(f"silent for {self._job.timeouts.coordinator:g} s")]

    def send(self, message: ToCoordinator) -> None:
        """Hand over for the inbox, in order; dropped without a connection. Never blocks."""
        if not self._up:
            return
        try:
            self._current.outbox.put(codec.encode(message))
        except codec.CodecError as error:
            log("message_dropped", level="error", reason=str(error))

    def flush(self, timeout: float) -> bool:
        """Wait until what was sent is with the store, at most `timeout` seconds; whether it is."""
        if not self._up:
            return False
        return self._current.flush(timeout)

    def _renew(self) -> None:
        self._current.abandoned.set()
        self._current = self._begin(self._current.number + 1)
        self._current.watched = self._watched
        self._up, self._beats, self._silent = False, 0, 0.0


class Generation:
    """One connecting, begun at once. The attributes are written by one side and read by the other."""

    def __init__(self, number: int, job: Job, node: Node, incarnation: int, dialer: Dialer, post: Post) -> None:
        self.number = number
        self.address: tuple[str, int] | None = None
        self.beats = 0
        self.abandoned = threading.Event()
        self.watched: Cycle | None = None
        self.outbox: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        self._heartbeat = job.timeouts.heartbeat
        self._keys = Keys(job.run_id)
        self._counter = self._keys.heartbeat(node.infra_rank)
        self._queue = self._keys.mail(node.infra_rank, incarnation)
        self._dialer = dialer
        self._post_to = post
        self._lease: int | None = None
        self._ended = False
        self._passed: Cycle | None = None
        self._over = False
        self._flushing: threading.Event | None = None
        self._run(self._connect_and_beat, "wire")

    def flush(self, timeout: float) -> bool:
        """See Wire.flush. Not waited for with a connection that is lost: the coordinator may well leave before us."""
        done = self._flushing = threading.Event()
        self.outbox.put(done)
        return not self._over and done.wait(timeout) and not self._over

    def _run(self, body: Callable[[], None], name: str) -> None:
        def target() -> None:
            try:
                body()
            except StoreLost as error:
                self._post(Disconnected(str(error)))
            except Exception as error:  # a bug, but a thread that ends in silence would be worse than a new connection
                log("wire_failed", level="error", error=traceback.format_exc())
                self._post(Disconnected(repr(error)))
            self._over = True
            if self._flushing is not None:
                self._flushing.set()

        threading.Thread(target=target, daemon=True, name=f"{name} {self.number}").start()

    def _post(self, event: AgentEvent | Up) -> None:
        self._post_to(FromWire(self.number, event))

    def _connect_and_beat(self) -> None:
        wait, longest = _BACKOFF
        if self.number > 1:
            self.abandoned.wait(wait)
        while not self.abandoned.is_set():
            try:
                found = self._dialer.dial()
                break
            except StoreLost as error:
                if wait < longest <= 2 * wait:  # once, and not while a coordinator is only slower to start than we are
                    log("coordinator_not_found", reason=str(error))
                self.abandoned.wait(wait)
                wait = min(2 * wait, longest)
        else:
            return
        self.address = found.address
        self._post(Up())
        self._run(lambda: self._read_mail(found.mail), "mail")
        self._beat(found.store)

    def _beat(self, store: Store) -> None:
        due = time.monotonic()
        while not self.abandoned.is_set():
            try:
                item = self.outbox.get(timeout=max(0.0, due - time.monotonic()))
            except Empty:
                due = time.monotonic() + self._heartbeat
                self._look(store)
                continue
            if isinstance(item, bytes):
                store.push(self._keys.inbox, item)
            else:
                store.add(self._counter, 0)  # a push is not acknowledged, this is: the store has read what came before
                item.set()

    def _look(self, store: Store) -> None:
        asked = time.monotonic()
        store.add(self._counter, 1)
        (lease,) = store.counters([self._keys.lease(TERM)])
        if self._lease is not None and lease > self._lease:  # the first value may be as old as the store
            self._post(LeaseMoved(asked))
        self._lease = lease
        cycle = self.watched
        if cycle is not None and cycle != self._passed and store.get(self._keys.barrier_done(cycle)) is not None:
            self._passed = cycle
            self._post(BarrierPassed(cycle))
        if not self._ended and (verdict := store.get(self._keys.permanent_close)) is not None:
            self._ended = True
            self._post(Ended(parse_verdict(verdict)))
        self.beats += 1

    def _read_mail(self, store: Store) -> None:
        while not self.abandoned.is_set():
            data = store.pop(self._queue, _POP)
            if data is None:
                continue
            if self.abandoned.is_set():
                # A host that was frozen goes on, and this mail is meant for our successor.
                store.push(self._queue, data)
                return
            try:
                self._post(Mailed(codec.decode(data, TO_AGENT)))
            except codec.CodecError as error:
                log("mail_dropped", level="warning", reason=str(error))

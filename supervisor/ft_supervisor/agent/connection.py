"""One connection of the agent to a coordinator's store. One thread writes heartbeats, sends messages and reads the
pulse; another one reads the mail.

No call to a store keeps its timeout if the host is frozen. So a connection (a generation) can be abandoned with its
threads at any moment, and the main loop ignores what these post afterwards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from ft_supervisor.agent.clock import ClockWatch
from ft_supervisor.agent.dial import Dialer, FoundStore
from ft_supervisor.core.agent.dialling import PAUSE
from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.events import (
    AgentEvent,
    BarrierPassed,
    CloseHeld,
    Disconnected,
    Looked,
    Mailed,
    PolicyDiffers,
)
from ft_supervisor.core.protocol.messages import TO_AGENT
from ft_supervisor.core.protocol.model import Cycle, Job, Node
from ft_supervisor.core.protocol.refusals import Refusals
from ft_supervisor.core.quorum.lease import echo
from ft_supervisor.process import clock
from ft_supervisor.process.log import current_traceback, log
from ft_supervisor.store import pulses
from ft_supervisor.store.base import Store, StoreLost
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.verdicts import parse_verdict

_POP = 10.0
"""Seconds that one wait for mail lasts."""
_WAKE = b""
"""The mail that ends an abandoned wait for mail."""


@dataclass(frozen=True)
class Reached:
    """A generation is connected; `round` is the pulse's, asked for at `asked` (process.clock)."""

    candidate: int
    round: int
    asked: float


@dataclass(frozen=True)
class FromWire:
    """An item that a generation's thread posts to the main loop."""

    generation: int
    event: AgentEvent | Reached


Post = Callable[[FromWire], None]


class Generation:
    """The search for the first of `candidates` that answers, and the connection to it; begun at once.

    The attributes are written by one side and read by the other. `number` is the connection's, part of its keys' names.
    """

    def __init__(
        self,
        number: int,
        candidates: Sequence[int],
        job: Job,
        node: Node,
        incarnation: int,
        dialer: Dialer,
        post: Post,
    ) -> None:
        self.number = number
        self.address: tuple[str, int] | None = None
        self.answered = 0.0
        """When the store last answered all requests of one look (process.clock)."""
        self.watched: Cycle | None = None
        self._outbox: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        self._abandoned = threading.Event()
        self._candidates = candidates
        self._heartbeat = job.timeouts.heartbeat
        self._keys = Keys(job.run_id)
        self._echo = self._keys.heartbeat(node.infra_rank, incarnation, number)
        self._mail = self._keys.mail(node.infra_rank, incarnation, number)
        self._dialer = dialer
        self._post_to = post
        self._ended = False
        self._passed: Cycle | None = None
        self._over = False
        self._clock = ClockWatch(job.settings.health.clock_offset)
        self._flushing: threading.Event | None = None
        self._run(self._connect_and_beat, "wire")

    def abandon(self) -> None:
        """Give the connection up for good. Never waits."""
        self._abandoned.set()
        self._outbox.put(None)

    def send(self, data: bytes) -> None:
        """Send a message to the inbox, in order. Never waits."""
        self._outbox.put(data)

    def flush(self, timeout: float) -> bool:
        """See Wire.flush. A connection that is lost is not waited for: the coordinator may leave before the agent."""
        done = self._flushing = threading.Event()
        self._outbox.put(done)
        return not self._over and done.wait(timeout) and not self._over

    def _run(self, body: Callable[[], None], name: str) -> None:
        def target() -> None:
            try:
                body()
            except StoreLost as error:
                self._post(Disconnected(str(error), silent=False))
            except (
                Exception
            ) as error:  # a bug, but a thread that ends without a report would be worse than a new connection
                log("wire_failed", level="error", error=current_traceback())
                self._post(Disconnected(repr(error), silent=False))
            self._over = True
            if self._flushing is not None:
                self._flushing.set()

        threading.Thread(target=target, daemon=True, name=f"{name} {self.number}").start()

    def _post(self, event: AgentEvent | Reached) -> None:
        self._post_to(FromWire(self.number, event))

    def _connect_and_beat(self) -> None:
        if self.number > 1:
            self._abandoned.wait(PAUSE)
        found = self._dialer.dial(self._candidates, self._abandoned, self._differs)
        if found is None:
            return
        self.address, self.answered = found.address, clock.now()
        self._post(Reached(found.candidate, found.round, found.asked))
        self._run(lambda: self._read_mail(found.mail), "mail")
        self._beat(found)

    def _differs(self, reason: str, certain: bool) -> None:
        self._post(PolicyDiffers(reason, certain))

    def _beat(self, found: FoundStore) -> None:
        store, due = found.store, time.monotonic()
        while not self._abandoned.is_set():
            try:
                item = self._outbox.get(timeout=max(0.0, due - time.monotonic()))
            except Empty:
                due = time.monotonic() + self._heartbeat
                self._look(store)
                continue
            if isinstance(item, bytes):
                store.push(self._keys.inbox, item)
            elif item is not None:
                store.get(
                    self._keys.hello
                )  # A push is not acknowledged; the answer proves that the store has read all former ones.
                item.set()
        store.push(self._mail, _WAKE)

    def _look(self, store: Store) -> None:
        asked = clock.now()
        written = pulses.parse(store.get(self._keys.pulse))
        self._clock.look(written.time, time.time())
        pulse = written.pulse
        self._post(Looked(asked, pulse.round, pulse.term, pulse.lease))
        round_ = echo(pulse.round, abandoned=self._abandoned.is_set())
        if round_ is None:
            return
        store.set(self._echo, str(round_).encode())
        cycle = self.watched
        if cycle is not None and cycle != self._passed and store.get(self._keys.barrier_done(cycle)) is not None:
            self._passed = cycle
            self._post(BarrierPassed(cycle))
        if not self._ended and (verdict := store.get(self._keys.permanent_close)) is not None:
            self._ended = True
            self._post(CloseHeld(parse_verdict(verdict)))
        self.answered = clock.now()

    def _read_mail(self, store: Store) -> None:
        refusals = Refusals()
        while not self._abandoned.is_set():
            data = store.pop(self._mail, _POP)
            if data is None or self._abandoned.is_set():
                continue
            try:
                self._post(Mailed(codec.decode(data, TO_AGENT)))
            except codec.CodecError as error:
                if (more := refusals.due("mail", time.monotonic())) is not None:
                    log("mail_dropped", level="warning", reason=str(error), more=more or None)

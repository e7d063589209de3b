"""An agent's connection: one Wire is one Dial and what came of it, like a generation of the agent's shell.

Looks for a candidate whose store answers, for ever; then asks for the pulse each heartbeat, echoes the round, sends
what the machine has to say and reads its mail. What an abandoned one still hears changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.dial import Attempt
from tests.simulation.network import Channel
from tests.simulation.store import Connection, MailKey, Store

from ft_supervisor.core.events import BarrierPassed, CloseHeld, Connected, Disconnected, Looked, Mailed
from ft_supervisor.core.messages import ToAgent, ToCoordinator
from ft_supervisor.core.model import Cycle, Verdict

if TYPE_CHECKING:
    from tests.simulation.agent import SimAgent

STAGGER = 0.5
"""Seconds until the next candidate is tried besides one that does not answer."""
BACKOFF = (0.05, 0.5)
"""Seconds between two rounds over all candidates: the first, doubled up to the second."""
PORT = 9


class Wire:
    """`number` counts this agent's connections."""

    def __init__(self, agent: SimAgent, number: int, candidates: tuple[int, ...]) -> None:
        self.agent = agent
        self.clock = agent.clock
        self.number = number
        self.candidates = candidates
        self.abandoned = False
        self.connection: Connection | None = None
        self.answered = 0.0
        self._key: MailKey = (agent.node.rank, agent.incarnation, number)
        self._backoff = BACKOFF[0]
        self._round = 0
        self._tried = 0
        self._failed = 0
        self._looking = False
        self._outbox: list[ToCoordinator] = []
        self._ended = False
        self._passed: Cycle | None = None
        self.clock.after(BACKOFF[0] if number > 1 else 0.0, agent.do, self._ask_all)

    # -- looking for a candidate

    @property
    def _over(self) -> bool:
        return self.abandoned or self.connection is not None

    def _ask_all(self) -> None:
        if not self._over:
            self._round += 1
            self._tried = self._failed = 0
            self._ask_next(self._round, 0)

    def _ask_next(self, round_: int, tried: int) -> None:
        if self._over or round_ != self._round or tried != self._tried or tried >= len(self.candidates):
            return
        self._tried += 1
        candidate = self.candidates[tried]
        here, there = self.agent.node.host, self.agent.world.nodes[candidate].host
        network = self.agent.world.network
        Attempt(self, candidate, round_, Channel(network, here, there), Channel(network, there, here))
        self.clock.after(STAGGER, self.agent.do, self._ask_next, round_, self._tried)

    def failed(self, round_: int) -> None:
        """One candidate does not answer, or not in time."""
        if self._over or round_ != self._round:
            return
        self._failed += 1
        if self._failed == len(self.candidates):
            self.clock.after(self._backoff, self.agent.do, self._ask_all)
            self._backoff = min(2 * self._backoff, BACKOFF[1])
        else:
            self._ask_next(round_, self._tried)

    def found(self, candidate: int, connection: Connection, round_: int, asked: float) -> None:
        """This store has answered first."""
        if self._over:
            return
        self.connection, self.answered = connection, self.clock.now
        self.agent.feed(Connected(candidate, self.number, round_, asked, PORT))
        if self.abandoned:
            return
        connection.push(partial(Store.read_mail, key=self._key, reader=self._deliver))
        self._look()
        self._judge()

    # -- being connected

    def send(self, message: ToCoordinator) -> None:
        """For the inbox, in order, and not while a look is under way."""
        if self._looking:
            self._outbox.append(message)
        elif self.connection is not None:
            self.connection.push(partial(Store.push, message=message))

    def flush(self) -> None:
        """What was to be sent is on its way."""
        for message in self._outbox:
            if self.connection is not None:
                self.connection.push(partial(Store.push, message=message))
        self._outbox.clear()

    def enter_barrier(self, cycle: Cycle, world_size: int) -> None:
        """In the background."""
        if self.connection is not None:
            self.connection.push(partial(Store.enter_barrier, cycle=cycle, world_size=world_size))

    def lost(self) -> None:
        """The other end says that the connection is no more."""
        self._disconnect("connection reset", silent=False)

    def _disconnect(self, reason: str, *, silent: bool) -> None:
        if not self.abandoned:
            self.abandoned = True
            self.agent.feed(Disconnected(reason, silent))

    def _deliver(self, message: ToAgent) -> None:
        assert self.connection is not None
        self.agent.world.mailed(self._key, message)
        self.connection.mail(self._take, message)

    def _take(self, message: ToAgent) -> None:
        if not self.abandoned:
            self.agent.feed(Mailed(message))

    def repeat(self, message: ToAgent) -> None:
        """Mail of before comes once more."""
        if self.connection is not None:
            self.connection.mail(self._take, message)

    def _look(self) -> None:
        if self.abandoned:
            return
        assert self.connection is not None
        self._looking = True
        now = self.clock.now
        self.connection.call(lambda store: store.pulse, partial(self._read, now, self.agent.node.local()))

    def _read(self, began: float, asked: float, pulse: tuple[int, int | None, int]) -> None:
        if self.abandoned:
            return  # above all, no echo: the node may have promised somebody else before this was read
        assert self.connection is not None
        looked = Looked(asked, *pulse)
        say_first = self.clock.random.random() < 0.5
        if say_first:
            self.agent.feed(looked)
        if self._over_by_now():
            return
        self.connection.call(partial(self._echo_and_ask, pulse[0], self.agent.watched), partial(self._end_look, began))
        if not say_first:
            self.agent.feed(looked)

    def _over_by_now(self) -> bool:
        return self.abandoned

    def _echo_and_ask(self, round_: int, watched: Cycle | None, store: Store) -> tuple[Cycle | None, Verdict | None]:
        store.heartbeats[self._key] = round_
        passed, verdict = store.endings(watched)
        return (watched if passed else None), verdict

    def _end_look(self, began: float, endings: tuple[Cycle | None, Verdict | None]) -> None:
        if self.abandoned:
            return
        assert self.connection is not None
        self._looking, self.answered = False, self.clock.now
        self.flush()
        self.clock.at(began + self.agent.beat, self.agent.do, self._look)
        passed, verdict = endings
        if passed is not None and passed != self._passed:
            self._passed = passed
            self.agent.feed(BarrierPassed(passed))
        if verdict is not None and not self._ended and not self.abandoned:
            self._ended = True
            self.agent.feed(CloseHeld(verdict))

    def _judge(self) -> None:
        """The main loop's look at how long nothing was answered."""
        if self.abandoned:
            return
        bound = self.agent.world.job.timeouts.coordinator
        if self.clock.now - self.answered >= bound - 1e-6:
            self._disconnect(f"silent for {bound:g} s", silent=True)
        else:
            self.clock.at(self.answered + bound, self.agent.do, self._judge)

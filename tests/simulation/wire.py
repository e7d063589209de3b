"""An agent's connection: one Wire carries out one Dial, like a generation of the agent's shell.

It looks for a candidate whose store answers, without a limit. Once connected, it asks for the pulse each heartbeat,
echoes the round, sends the machine's messages and reads its mail. An abandoned Wire ignores all later answers and mail.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from tests.simulation.dial import Attempt
from tests.simulation.network import Channel
from tests.simulation.store import Connection, MailKey, Store

from ft_supervisor.core.agent.dialling import PAUSE, Dialling, Route
from ft_supervisor.core.agent.silence import Silence
from ft_supervisor.core.protocol.events import (
    BarrierPassed,
    CloseHeld,
    Connected,
    Disconnected,
    Looked,
    Mailed,
    PolicyDiffers,
)
from ft_supervisor.core.protocol.messages import ToAgent, ToCoordinator
from ft_supervisor.core.protocol.model import Cycle, Verdict
from ft_supervisor.core.protocol.orders import Reached
from ft_supervisor.core.quorum import lease

if TYPE_CHECKING:
    from tests.simulation.agent import SimAgent

PORT = 9


class Wire:
    """One connection. `number` counts this agent's connections."""

    def __init__(self, agent: SimAgent, number: int, candidates: tuple[int, ...]) -> None:
        self.agent = agent
        self.clock = agent.clock
        self.number = number
        self.candidates = candidates
        self.abandoned = False
        self.connection: Connection | None = None
        self.answered = 0.0
        self._key: MailKey = (agent.node.rank, agent.incarnation, number)
        self._dialling: Dialling | None = None
        self._silence = Silence(agent.world.job.timeouts.coordinator, agent.beat)
        self._judged_at = 0.0
        self._looking = False
        self._outbox: list[ToCoordinator] = []
        self._ended = False
        self._passed: Cycle | None = None
        self._ask_at = inf
        """Time at which the dialling is asked for routes next."""
        self.clock.after(PAUSE if number > 1 else 0.0, agent.do, self._begin)

    # -- looking for a candidate

    @property
    def _over(self) -> bool:
        return self.abandoned or self.connection is not None

    def _begin(self) -> None:
        self._dialling = Dialling(self.candidates, lambda _: True, self.clock.now)
        self._ask(self._dialling)

    def _ask(self, dialling: Dialling) -> None:
        """Try the routes that are due, and schedule the next ones."""
        if self._over:
            return
        network, here = self.agent.world.network, self.agent.node.host
        for route in dialling.begin(self.clock.now):
            there = self.agent.world.nodes[route.candidate].host
            Attempt(self, route, Channel(network, here, there), Channel(network, there, here))
        if dialling.due_at < self._ask_at:
            self._ask_at = dialling.due_at
            self.clock.at(self._ask_at, self.agent.do, self._ask_again, dialling, self._ask_at)

    def _ask_again(self, dialling: Dialling, at: float) -> None:
        """Ask, unless an earlier time was set meanwhile."""
        if at == self._ask_at:
            self._ask_at = inf
            self._ask(dialling)

    def failed(self, route: Route) -> None:
        """Note that a route does not lead to the candidate's store, or not in time."""
        if not self._over and self._dialling is not None:
            self._dialling.failed(route, "no answer", self.clock.now)
            self._ask(self._dialling)

    def differs(self, route: Route, reason: str) -> None:
        """Note that a store with another configuration has answered."""
        if not self._over and self._dialling is not None and self._dialling.differs(route, reason):
            self.agent.feed(PolicyDiffers(reason, certain=route.by_file))

    def found(self, candidate: int, connection: Connection, round_: int, asked: float) -> None:
        """Use the connection to the store that has answered first."""
        if self._over:
            return
        self.connection, self.answered = connection, self.clock.now
        self._silence.begin(self.clock.now)
        self.agent.node.tell_daemon("agent", Reached(str(candidate), PORT))
        self.agent.feed(Connected(candidate, self.number, round_, asked, PORT))
        if self.abandoned:
            return
        connection.push(partial(Store.read_mail, key=self._key, reader=self._deliver))
        self._look()
        self.judge()

    # -- being connected

    def send(self, message: ToCoordinator) -> None:
        """Send a message to the inbox, in order; it waits while a look is under way."""
        if self._looking:
            self._outbox.append(message)
        elif self.connection is not None:
            self.connection.push(partial(Store.push, message=message))

    def flush(self) -> None:
        """Send the messages that wait."""
        for message in self._outbox:
            if self.connection is not None:
                self.connection.push(partial(Store.push, message=message))
        self._outbox.clear()

    def enter_barrier(self, cycle: Cycle, world_size: int) -> None:
        """Enter the cycle's exit barrier, without waiting for the store."""
        if self.connection is not None:
            self.connection.push(partial(Store.enter_barrier, cycle=cycle, world_size=world_size))

    def lost(self) -> None:
        """Handle a connection reset by the other end."""
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
        """Deliver a piece of mail once more."""
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
        assert self.connection is not None
        looked, is_fed = Looked(asked, *pulse), False
        if not self.abandoned and self.clock.random.random() < 0.5:
            self.agent.feed(looked)
            is_fed = True
        round_ = lease.echo(pulse[0], abandoned=self.abandoned)
        if round_ is None:
            return
        self.connection.call(partial(self._echo_and_ask, round_, self.agent.watched), partial(self._end_look, began))
        if not is_fed and not self.abandoned:
            self.agent.feed(looked)

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

    def judge(self) -> None:
        """Disconnect if the store has not answered for too long, as the shell's main loop does."""
        if self.abandoned or self.connection is None:
            return
        if self._silence.over(self.answered, self.clock.now + 1e-6):
            self._disconnect(f"silent for {self.agent.world.job.timeouts.coordinator:g} s", silent=True)
        elif self._silence.due is not None and self._silence.due != self._judged_at:
            self._judged_at = self._silence.due
            self.clock.at(self._silence.due, self.agent.do, self.judge)

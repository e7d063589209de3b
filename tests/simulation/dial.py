"""An agent's attempt to reach one candidate's store over the network."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.network import Channel
from tests.simulation.store import Connection

from ft_supervisor.core.agent.dialling import Route

if TYPE_CHECKING:
    from tests.simulation.wire import Wire


class Attempt:
    """One attempt: connect to the candidate, exchange hello, and read the pulse."""

    def __init__(self, wire: Wire, route: Route, there: Channel, back: Channel) -> None:
        self._wire = wire
        self._route = route
        self._candidate = route.candidate
        self._back = back
        self._connection: Connection | None = None
        self._done = False
        there.send(self._knock)
        wire.clock.after(wire.agent.world.job.timeouts.coordinator, wire.agent.do, self._fail)

    def _knock(self) -> None:
        wire = self._wire
        server = wire.agent.world.nodes[self._candidate].coordinator
        if server is None or not server.alive or not server.listening:
            # The address file names only the job's own store.
            squatted = not self._route.by_file
            squatted &= wire.agent.world.now < wire.agent.world.nodes[self._candidate].squatted_until
            self._back.send(wire.agent.do, self._differ if squatted else self._fail)
        else:
            server.do(self._welcome, server)

    def _welcome(self, server: object) -> None:
        wire = self._wire
        coordinator = wire.agent.world.nodes[self._candidate].coordinator
        if coordinator is None or coordinator is not server:
            return
        node = wire.agent.world.nodes[self._candidate]
        here = wire.agent.node.host
        network = wire.agent.world.network
        self._connection = Connection(network, here, node.host, wire.agent, coordinator, self._lost)
        self._back.send(wire.agent.do, self._greet, self._connection)

    def _greet(self, connection: Connection) -> None:
        if not self._done and not self._wire.abandoned:
            asked = self._wire.agent.node.local()
            connection.call(lambda store: store.pulse[0], partial(self._answer, connection, asked))

    def _answer(self, connection: Connection, asked: float, round_: int) -> None:
        if not self._done:
            self._done = True
            self._wire.found(self._candidate, connection, round_, asked)

    def _differ(self) -> None:
        """Report that a stranger's store has answered, and that the candidate's own is not there."""
        if not self._done and not self._wire.abandoned:
            self._wire.differs(self._route, "a stranger's store")
        self._fail()

    def _fail(self) -> None:
        if not self._done:
            self._done = True
            self._wire.failed(self._route)

    def _lost(self) -> None:
        if self._connection is self._wire.connection:
            self._wire.lost()
        else:
            self._fail()

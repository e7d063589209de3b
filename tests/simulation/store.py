"""A coordinator's store, and the connections to it. It lives, stands still and dies with the coordinator's process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.network import Channel, Host, Network

from ft_supervisor.core.protocol.messages import ToAgent, ToCoordinator
from ft_supervisor.core.protocol.model import Cycle, Verdict

if TYPE_CHECKING:
    from tests.simulation.coordinator import SimCoordinator
    from tests.simulation.process import Process

T = TypeVar("T")
MailKey = tuple[int, int, int]
"""The key of a queue of mail: infra_rank, incarnation, connection."""


class Store:
    """The keys of a store. `receive` handles a message in the inbox."""

    def __init__(self, receive: Callable[[ToCoordinator], None]) -> None:
        self.pulse: tuple[int, int | None, int] = (0, None, 0)
        self.heartbeats: dict[MailKey, int] = {}
        self.permanent_close: Verdict | None = None
        self.receive = receive
        self.received: list[ToCoordinator] = []
        self._boxes: dict[MailKey, list[ToAgent]] = {}
        self._readers: dict[MailKey, Callable[[ToAgent], None]] = {}
        self._barriers: dict[Cycle, int] = {}
        self._passed: set[Cycle] = set()
        self._strangers = False

    def push(self, message: ToCoordinator) -> None:
        """Push a message into the inbox."""
        self.received.append(message)
        self.receive(message)

    def mail(self, key: MailKey, message: ToAgent) -> None:
        """Push a message into this queue of mail, for a reader now or later."""
        reader = self._readers.get(key)
        if reader is not None:
            reader(message)
        else:
            self._boxes.setdefault(key, []).append(message)

    def read_mail(self, key: MailKey, reader: Callable[[ToAgent], None]) -> None:
        """Deliver this queue's mail to `reader` from now on."""
        self._readers[key] = reader
        for message in self._boxes.pop(key, []):
            reader(message)

    def claim(self, verdict: Verdict) -> Verdict:
        """Set permanent_close unless it is set, as compare_set does, and return its value."""
        self.permanent_close = self.permanent_close or verdict
        return self.permanent_close

    def enter_barrier(self, cycle: Cycle, world_size: int) -> None:
        """Note that one more member has arrived at the exit barrier."""
        self._barriers[cycle] = self._barriers.get(cycle, 0) + 1
        if self._barriers[cycle] >= world_size:
            self._passed.add(cycle)

    def open_barriers(self) -> None:
        """Set the keys of all exit barriers, as a stranger can."""
        self._strangers = True

    def endings(self, watched: Cycle | None) -> tuple[bool, Verdict | None]:
        """Return whether that exit barrier is passed, by its key, and permanent_close."""
        passed = watched in self._passed or (self._strangers and watched is not None)
        return passed, self.permanent_close


class Connection:
    """A client's connection to the store of `server`; `client` is the process that made it, on `here`."""

    def __init__(
        self,
        network: Network,
        here: Host,
        there: Host,
        client: Process,
        server: SimCoordinator,
        lost: Callable[[], None],
    ) -> None:
        self.client = client
        self.server = server
        self._there = Channel(network, here, there)
        self._back = Channel(network, there, here)
        self._mail = Channel(network, there, here)
        self._lost = lost
        server.connections.append(self)

    def call(self, request: Callable[[Store], T], reply: Callable[[T], None]) -> None:
        """Send a request. `reply` is called with the answer later, or never."""
        self._there.send(self._arrive, request, reply)

    def push(self, request: Callable[[Store], None]) -> None:
        """Send a request that has no answer."""
        self._there.send(self._arrive, request, None)

    def mail(self, deed: Callable[..., None], *arguments: Any) -> None:
        """Answer the reader that waits for mail, on a connection of its own."""
        self._mail.send(self.client.do, deed, *arguments)

    def reset(self) -> None:
        """Handle the end of the server's process, whose host still lives."""
        self._back.send(self.client.do, self._lost)

    def sever(self) -> None:
        """Break the connection between the hosts: messages under way are lost, and the client detects it."""
        for channel in (self._there, self._back, self._mail):
            channel.broken = True
        self.client.do(self._lost)

    def _arrive(self, request: Callable[[Store], T], reply: Callable[[T], None] | None) -> None:
        if self.server.alive:
            self.server.do(self._serve, request, reply)
        else:
            self.reset()

    def _serve(self, request: Callable[[Store], T], reply: Callable[[T], None] | None) -> None:
        result = request(self.server.store)
        if reply is not None:
            self._back.send(self.client.do, reply, result)

"""Both stores behind one handle, so that the same tests hold for them."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ft_supervisor.store import tcp
from ft_supervisor.store.base import Store
from ft_supervisor.store.memory import MemoryStore


@dataclass
class Server:
    """One store: its server, a way to connect to it, and its end."""

    store: MemoryStore | tcp.TcpStore
    port: int = 0

    def connect(self) -> Store:
        """Return a new connection."""
        if isinstance(self.store, MemoryStore):
            return self.store.clone()
        return tcp.connect("127.0.0.1", self.port, 30)

    def die(self) -> None:
        """End as if the server's process were killed."""
        if isinstance(self.store, MemoryStore):
            self.store.lose()
        else:
            self.store = MemoryStore()  # the server ends with the last reference to it


@pytest.fixture(params=["memory", "tcp"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Start a store without any keys."""
    if request.param == "memory":
        yield Server(MemoryStore())
        return
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    yield Server(tcp.serve(sock), port)


@pytest.fixture
def store(server: Server) -> Store:
    """Connect to the server."""
    return server.connect()

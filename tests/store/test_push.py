"""A push without torch arrives in torch's store; where the store speaks otherwise, it is missed in time."""

import socket
import threading

import pytest

from ft_supervisor.store import tcp
from ft_supervisor.store.base import StoreLost
from ft_supervisor.store.push import push

BOUND = 30.0


def test_the_pinned_torch_takes_it() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    store = tcp.serve(sock)
    for data in (b"a message", b"x" * 100_000, b""):
        push("127.0.0.1", port, "ft/1/inbox", data, BOUND)
        assert store.pop("ft/1/inbox", 0.0) == data  # it is there at once: the push has waited for the store


@pytest.mark.parametrize("said", [b"", b"HTTP", b"\x01\x02"])
def test_a_store_with_another_protocol_gets_no_message(said: bytes) -> None:
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as client:
                heard.append(client.recv(4096))
                client.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(StoreLost, match=r"protocol|reset"):
            push("127.0.0.1", server.getsockname()[1], "ft/1/inbox", b"a message", BOUND)
        thread.join()
    assert b"a message" not in heard[0]


def test_a_silent_store_is_waited_for_within_the_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(StoreLost, match="timed out"):
        push("127.0.0.1", server.getsockname()[1], "ft/1/inbox", b"a message", 0.1)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(StoreLost, match="refused"):
        push("127.0.0.1", port, "ft/1/inbox", b"a message", BOUND)

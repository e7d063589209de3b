"""The real store: torch's TCPStore. The only file here that imports torch. See docs/internals/torch.md."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Self, cast

ADDED_TO_ENVIRONMENT = {
    name: value
    for name, value in (
        # Server and clients look up the peer's name, the server on the one thread that serves all clients: a lost DNS
        # packet would stop it for 5 s. Read by the C library at its first look-up.
        ("RES_OPTIONS", "timeout:1 attempts:1"),
        # torch logs a stack trace for a pop that finds nothing, and, as an error, for a store that dies while a client
        # connects to it. Both are raised as well. Read when torch is imported.
        ("TORCH_CPP_LOG_LEVEL", "FATAL"),
    )
    if name not in os.environ
}
"""Variables that the import of this file has added to the environment. They are not meant for the workers."""
os.environ.update(ADDED_TO_ENVIRONMENT)

# E402: after the environment it reads; attr-defined and casts: torch's stubs lag behind its binding
from torch.distributed import DistStoreError, TCPStore  # type: ignore[attr-defined]  # noqa: E402

from ft_supervisor.store.base import HostSilent, StoreLost, number  # noqa: E402

_TIMEOUT = 30.0
"""Seconds for any call but pop, against a server that has accepted this connection but does not answer."""
_CLONE_TIMEOUT = 5.0
_UNREACHABLE = {errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN}
_NO_KEY = b"\0no such key\0"
"""A value that no key of ours has."""


def serve(sock: socket.socket) -> TcpStore:
    """Host a store on `sock`, bound and listening, and take the socket over. The store lives as long as the object
    returned; clones do not keep it alive. Raises StoreLost when torch can't host it."""
    host, port = sock.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if sock.family == socket.AF_INET else "localhost"
    with _lost_if_error(f"hosting a store on port {port}"):
        store = TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=_TIMEOUT),
            master_listen_fd=sock.detach(),
        )
    return TcpStore(store)


def connect(host: str, port: int, timeout: float) -> TcpStore:
    """Return a new connection, within `timeout` seconds each for the port and for the server behind it. Raises
    StoreLost otherwise; HostSilent when the host does not even refuse.

    A server that accepts and then does not answer may hold the caller for longer.
    """
    # torch logs a stack trace at each attempt and goes on trying when the port is refused; a socket of our own does not
    try:
        socket.create_connection((host, port), timeout).close()
    except (OSError, UnicodeError) as error:
        silent = isinstance(error, TimeoutError) or getattr(error, "errno", None) in _UNREACHABLE
        raise (HostSilent if silent else StoreLost)(f"{host}:{port}: {error}") from None
    with _lost_if_error(f"{host}:{port}"):
        return TcpStore(TCPStore(host, port, wait_for_workers=False, timeout=timedelta(seconds=timeout)))


class TcpStore:
    """A Store that is torch's TCPStore."""

    def __init__(self, store: TCPStore) -> None:
        self.torch_store = store
        self._counted: set[str] = set()
        store.set_timeout(timedelta(seconds=_TIMEOUT))

    def push(self, queue: str, data: bytes) -> None:
        """See Store."""
        with _lost_if_error(queue):
            self.torch_store.queue_push(queue, data)

    def pop(self, queue: str, timeout: float) -> bytes | None:
        """See Store."""
        with _lost_if_error(queue):
            try:
                if timeout < 0.001:  # torch counts milliseconds, and 0 means for ever
                    return self.torch_store.queue_pop(queue, False)
                self.torch_store.set_timeout(timedelta(seconds=timeout))
                return self.torch_store.queue_pop(queue)
            except DistStoreError:  # nothing came; errors of the connection are DistNetworkErrors
                return None
            finally:
                self.torch_store.set_timeout(timedelta(seconds=_TIMEOUT))

    def get(self, key: str) -> bytes | None:
        """See Store."""
        # torch's get waits for a missing key. Its compare_set returns the expected value when there is none, and
        # writes nothing then.
        with _lost_if_error(key):
            held = self.torch_store.compare_set(key, cast(str, _NO_KEY), cast(str, _NO_KEY))
        return None if held == _NO_KEY else held

    def set(self, key: str, data: bytes) -> None:
        """See Store."""
        with _lost_if_error(key):
            self.torch_store.set(key, cast(str, data))

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """See Store."""
        with _lost_if_error(key):
            held = self.torch_store.compare_set(key, cast(str, expected), cast(str, desired))
        if held == expected != b"":  # torch returns this also when there is no such key
            return self.get(key) or b""
        return held

    def counters(self, keys: Sequence[str]) -> list[int]:
        """See Store."""
        if not keys:
            return []
        with _lost_if_error(keys[0]):
            for key in keys:
                if key not in self._counted:  # multi_get would wait for it
                    self.torch_store.compare_set(key, "", "0")
                    self._counted.add(key)
            return [number(value) for value in self.torch_store.multi_get(list(keys))]

    def clone(self) -> Self:
        """See Store."""
        # Not torch's own clone, which tries for this store's whole timeout when the server is gone; and without
        # connect's look at the port, as the server was there a moment ago: a thousand agents do this at once.
        host, port = self.torch_store.host, self.torch_store.port
        with _lost_if_error(f"{host}:{port}"):
            return type(self)(TCPStore(host, port, wait_for_workers=False, timeout=timedelta(seconds=_CLONE_TIMEOUT)))


@contextmanager
def _lost_if_error(what: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # the base of all that torch raises
        raise StoreLost(f"{what}: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from error

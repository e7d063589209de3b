"""Pushes one message into a queue of a TCPStore without torch, for a daemon, which has none.

It speaks the store's own protocol (torch/csrc/distributed/c10d/TCPStoreBackend.hpp), which torch does not document. So
it is made to be missed: what it says spares others a wait, and is never needed. The store has to answer a ping in the
same way before anything is sent, and once more afterwards, which shows that it has read all of it. A store that knows
another protocol closes the connection.
"""

from __future__ import annotations

import socket
import struct

from ft_supervisor.store.base import StoreLost

_VALIDATE, _PING, _PUSH = b"\x00", b"\x0d", b"\x0e"
_MAGIC = 0x3C85F7CE
_BEFORE, _AFTER = 0x46545331, 0x46545332
"""What the two pings carry, and their answers."""


def push(host: str, port: int, queue: str, data: bytes, bound: float) -> None:
    """Append to a queue, as Store.push, and wait until the store has it. Raises StoreLost, after some multiple of
    `bound` seconds at the latest."""
    try:
        with socket.create_connection((host, port), bound) as sock:
            sock.settimeout(bound)
            _ping(sock, _VALIDATE + struct.pack("<I", _MAGIC), _BEFORE)
            _ping(sock, _PUSH + _text(b"/" + queue.encode()) + _text(data), _AFTER)
    except (OSError, UnicodeError) as error:
        raise StoreLost(f"{host}:{port}: {error}") from None


def _ping(sock: socket.socket, first: bytes, nonce: int) -> None:
    """Send `first` and a ping, and read its answer."""
    asked = struct.pack("<I", nonce)
    sock.sendall(first + _PING + asked)
    answer = b""
    while len(answer) < len(asked):
        part = sock.recv(len(asked) - len(answer))
        if not part:
            raise ConnectionError("the store closed the connection: it may have another protocol")
        answer += part
    if answer != asked:
        raise ConnectionError("no answer to a ping: the store has another protocol")


def _text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data

"""The agent's end of the sockets over which workers are given their cycle (FT_SUPERVISOR_SOCKET), one for each rank.

A message is one packet, a JSON object with a key `type`. A connection is accepted from a process that this agent has
admitted, or one below it, by the pid that the kernel gives (unix(7), SO_PEERCRED), and at most one for each. Others are
closed. What is no message closes its connection. The sockets live as long as the agent.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ft_supervisor.agent import local_sockets
from ft_supervisor.process.log import log

LONGEST = 1 << 16
"""Bytes of a message."""
_BACKLOG = 8
_UNREAD = 1000
"""Messages of all workers that wait for the main loop, at most: a worker must not fill the agent's memory."""


@dataclass(frozen=True)
class Said:
    """A message on the connection of `sender`, which is the admitted process `pid` or below it. `message` None: the
    connection has ended."""

    pid: int
    sender: int
    message: Mapping[str, Any] | None


@dataclass(frozen=True)
class _Connection:
    """The connection of `sender`, which is the admitted process `root` or below it."""

    root: int
    sender: int
    sock: socket.socket


class Control:
    """For the main thread. A thread reads the sockets, and calls `wake` when there is something for `poll`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()  # protects all attributes below
        self._listening: dict[int, tuple[int, socket.socket]] = {}
        self._admitted: dict[int, int] = {}
        self._connections: dict[int, _Connection] = {}
        self._said: list[Said] = []
        self._refused: dict[int, int] = {}
        self._epoll = select.epoll()
        threading.Thread(target=self._read, daemon=True, name="control").start()

    def open(self, folder: Path, local_ranks: Iterable[int]) -> dict[int, str]:
        """Return FT_SUPERVISOR_SOCKET by local rank. Raises OSError."""
        with self._lock:
            return {local_rank: self._open(folder / str(local_rank), local_rank) for local_rank in local_ranks}

    def admit(self, local_rank: int, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a process whose connection to this rank's socket, or that of one below it, is accepted until `forget`.

        No connection is looked at meanwhile, so that none comes before its process is known. Raises what `start` does.
        """
        with self._lock:
            process = start()
            self._admitted[process.pid] = local_rank
        return process

    def forget(self, pid: int) -> None:
        """Close the connection of this process, and accept no other."""
        with self._lock:
            self._admitted.pop(pid, None)
            for fd, connection in list(self._connections.items()):
                if connection.root == pid:
                    self._end(fd)

    def connected(self, pid: int) -> bool:
        """Return whether the admitted process, or one below it, has a connection."""
        with self._lock:
            return self._of(pid) is not None

    def send(self, pid: int, message: Mapping[str, object], fds: Sequence[int] = ()) -> bool:
        """Send a message to the admitted process, with file descriptors. Never waits. Return whether it was taken."""
        with self._lock:
            connection = self._of(pid)
            if connection is None:
                return False
            try:
                socket.send_fds(connection.sock, [json.dumps(message).encode()], fds, socket.MSG_DONTWAIT)
            except OSError:
                return False
            return True

    def poll(self) -> list[Said]:
        """Return what came since the last call, in order."""
        with self._lock:
            said, self._said = self._said, []
        return said

    def drain(self, pid: int) -> None:
        """Have the next `poll` return all that this process, which has exited, has sent."""
        with self._lock:
            self._drain(pid)

    def refused(self) -> dict[int, int]:
        """Return how many connections to each rank's socket were refused since the last `renew`, if any."""
        with self._lock:
            return dict(self._refused)

    def renew(self) -> None:
        """Count anew: a cycle begins."""
        with self._lock:
            self._refused.clear()

    def _open(self, path: Path, local_rank: int) -> str:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        name, _ = local_sockets.bind(sock, path)
        sock.setblocking(False)
        sock.listen(_BACKLOG)
        self._listening[sock.fileno()] = (local_rank, sock)
        self._epoll.register(sock, select.EPOLLIN)
        return name

    def _read(self) -> None:
        while True:
            ready = self._epoll.poll()
            with self._lock:
                for fd, _ in ready:
                    if fd in self._listening:
                        self._accept(*self._listening[fd])
                    elif fd in self._connections:
                        self._receive(fd)
                waiting = bool(self._said)
            if waiting:
                self._wake()

    def _accept(self, local_rank: int, sock: socket.socket) -> None:
        try:
            connection, _ = sock.accept()
        except OSError:  # it has gone again; after any other error, too, the thread has to go on
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, local_sockets.CREDENTIALS.size)
        sender = local_sockets.CREDENTIALS.unpack(credentials)[0]
        root = self._root(local_rank, sender)
        if root is None:
            connection.close()
            self._refuse(local_rank, sender)
            return
        connection.setblocking(False)
        self._connections[connection.fileno()] = _Connection(root, sender, connection)
        self._epoll.register(connection, select.EPOLLIN)

    def _root(self, local_rank: int, sender: int) -> int | None:
        """Return the admitted process that this one is or is below, if it has no connection yet, or no longer."""
        for pid in local_sockets.ancestry(sender):
            if self._admitted.get(pid) == local_rank:
                self._drain(pid)  # a connection that it has closed before it made this one may be unread still
                return pid if self._of(pid) is None else None
        return None

    def _of(self, pid: int) -> _Connection | None:
        return next((each for each in self._connections.values() if each.root == pid), None)

    def _drain(self, pid: int) -> None:
        for fd, connection in list(self._connections.items()):
            while connection.root == pid and fd in self._connections and self._receive(fd):
                pass

    def _refuse(self, local_rank: int, sender: int) -> None:
        self._refused[local_rank] = self._refused.get(local_rank, 0) + 1
        if self._refused[local_rank] == 1:
            log("control_refused", "warning", local_rank=local_rank, sender=sender)

    def _receive(self, fd: int) -> bool:
        """Take one message. Return whether there may be more."""
        connection = self._connections[fd]
        try:
            # no room for file descriptors: the kernel closes those
            data, _, flags, _ = connection.sock.recvmsg(LONGEST)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # it has ended without reading all that it got; what it sent comes after this
            return True
        except OSError:
            data, flags = b"", 0
        message = None if flags & socket.MSG_TRUNC else _parsed(data)
        if message is None or len(self._said) >= _UNREAD:
            self._end(fd)
            self._said.append(Said(connection.root, connection.sender, None))
            return False
        self._said.append(Said(connection.root, connection.sender, message))
        return True

    def _end(self, fd: int) -> None:
        sock = self._connections.pop(fd).sock
        self._epoll.unregister(fd)
        sock.close()


def _parsed(data: bytes) -> dict[str, Any] | None:
    """Return the message; None for what is none, and for the end of the connection."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("type"), str) else None

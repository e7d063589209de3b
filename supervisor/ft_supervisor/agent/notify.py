"""Heartbeats of workers by systemd's notify protocol, sd_notify(3): a datagram socket for each local rank.

A socket accepts messages only from its worker and the worker's descendants, by the pid that the kernel gives with each
message. Messages of other processes, or longer than systemd allows, are counted and dropped. Nothing is ever sent back,
but a file descriptor that came along is closed, as a sender with BARRIER=1 waits for that.
"""

from __future__ import annotations

import array
import os
import re
import select
import socket
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ft_supervisor.agent import local_sockets
from ft_supervisor.core.protocol.bounds import MOST
from ft_supervisor.core.protocol.events import Beat
from ft_supervisor.core.words import one_line, plain
from ft_supervisor.process.log import log

_KINDS: dict[str, str] = {
    "WATCHDOG=1": "beat",
    "READY=1": "ready",
    "STOPPING=1": "stopping",
    "WATCHDOG=trigger": "trigger",
}
_WEIGHT: dict[str, int] = {"beat": 0, "ready": 1, "stopping": 2, "trigger": 3}
_LONGEST = 4096
"""Bytes of a message; systemd's limit too."""
_AT_ONCE = 100
"""Messages of one worker that one call reads at most: a worker that never stops must not hold the main loop."""
_STATUS = 200
"""Characters kept of STATUS=."""
_STEP = re.compile(r"step[ =:]{1,2}([0-9]{1,16})(?![0-9])", re.ASCII | re.IGNORECASE)
"""The training step in STATUS=, as worker.ping writes it."""
_FOREVER = 2**64 - 1
"""WATCHDOG_USEC of a worker that must not be watched; 0 means that too."""


def parse(data: bytes) -> tuple[str | None, float | None, str | None]:
    """Return (kind, after, status) of a message; None for each that it does not contain."""
    kind: str | None = None
    after = status = None
    for line in data.decode(errors="replace").split("\n"):
        name, _, value = line.partition("=")
        said = _KINDS.get(line)
        if name == "STATUS":
            status = one_line(plain(value), _STATUS)
        elif name == "WATCHDOG_USEC" and value.isascii() and value.isdecimal() and len(value) <= 20:
            after = 0.0 if int(value) == _FOREVER else int(value) / 1e6
            said = "beat"  # systemd restarts its watchdog then
        if said is not None and (kind is None or _WEIGHT[said] > _WEIGHT[kind]):
            kind = said
    return kind, after, status


def step_of(status: str | None) -> int | None:
    """Return the training step with which a STATUS= begins; None if it begins with none, or with one beyond MOST."""
    found = _STEP.match(status or "")
    return int(found[1]) if found and int(found[1]) <= MOST else None


class Beats:
    """Receives the workers' messages. For the main thread: `open` before workers are started, `listen` after, `close`
    once they are gone. A thread reads the sockets, so that no worker waits for us."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects all attributes below
        self._sockets: dict[int, tuple[int, socket.socket]] = {}
        self._names: dict[int, tuple[str, Path | None]] = {}
        self._pids: dict[int, int] = {}
        self._beats: dict[int, Beat] = {}
        self._statuses: dict[int, str] = {}
        self._refused: dict[int, int] = {}
        self._epoll = select.epoll()
        threading.Thread(target=self._read, daemon=True, name="notify").start()

    def open(self, folder: Path, local_ranks: Iterable[int], kept: Collection[int] = ()) -> dict[int, str]:
        """Return NOTIFY_SOCKET by rank: files in `folder`, which is made, or abstract names (unix(7)) where a file
        can't be. Raises OSError; `close` is due then too. `kept`: the ranks whose workers have theirs, as `close` has
        left it: a client that is connected must find it again."""
        self.close(kept)
        with self._lock:
            self._beats, self._statuses, self._refused = {}, {}, {}
            for local_rank in local_ranks:
                if local_rank not in self._names:
                    self._open(folder / str(local_rank), local_rank)
            return {local_rank: self._names[local_rank][0] for local_rank in local_ranks}

    def listen(self, pids: Mapping[int, int]) -> None:
        """Begin to read the messages of these workers, the only ones of their local ranks from now on. Earlier messages
        have waited in the sockets."""
        with self._lock:
            for fd, (local_rank, _) in self._sockets.items():
                if local_rank in pids and local_rank not in self._pids:
                    self._epoll.register(fd, select.EPOLLIN)
            self._pids |= pids

    def poll(self) -> tuple[Beat, ...]:
        """Return what workers sent since the last call, one Beat per rank; also what the thread has not read yet."""
        with self._lock:
            for local_rank, sock in self._sockets.values():
                if local_rank in self._pids:
                    self._drain(local_rank, sock)
            beats, self._beats = self._beats, {}
        return tuple(beats.values())

    def statuses(self) -> dict[int, str]:
        """Return the last STATUS of each rank that has sent one: one line of at most 200 characters, for people."""
        with self._lock:
            return dict(self._statuses)

    def refused(self) -> dict[int, int]:
        """Return how many messages of each rank's socket were dropped, if any."""
        with self._lock:
            return dict(self._refused)

    def close(self, kept: Collection[int] = ()) -> None:
        """Close all sockets but those of the ranks `kept`."""
        with self._lock:
            for fd, (local_rank, sock) in list(self._sockets.items()):
                if local_rank in kept:
                    continue
                with suppress(OSError):  # not registered yet
                    self._epoll.unregister(sock)
                sock.close()
                del self._sockets[fd]
                self._pids.pop(local_rank, None)
                _, path = self._names.pop(local_rank, ("", None))
                if path is not None:
                    with suppress(OSError):
                        path.unlink()

    def _open(self, path: Path, local_rank: int) -> None:
        self._pids.pop(local_rank, None)  # a spare's worker was there before it had a socket: `listen` is due
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sockets[sock.fileno()] = (local_rank, sock)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # first, or a message could come without credentials
        self._names[local_rank] = local_sockets.bind(sock, path)

    def _read(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                with self._lock:
                    if fd in self._sockets:
                        self._receive(*self._sockets[fd])

    def _drain(self, local_rank: int, sock: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if not self._receive(local_rank, sock):
                return

    def _receive(self, local_rank: int, sock: socket.socket) -> bool:
        """Take one message. Return whether there was one."""
        try:
            # room for the credentials only: the kernel closes file descriptors for which there is no room
            data, ancillary, flags, _ = sock.recvmsg(_LONGEST, socket.CMSG_SPACE(local_sockets.CREDENTIALS.size))
        except OSError:  # no message any more; after any other error, too, the thread has to go on
            return False
        sender = _sender(ancillary)
        if flags & socket.MSG_TRUNC or sender is None or not local_sockets.is_below(sender, self._pids.get(local_rank)):
            self._refuse(local_rank, sender, len(data))
            return True
        kind, after, status = parse(data)
        if status is not None:
            self._statuses[local_rank] = status
        if kind is not None:
            self._beats[local_rank] = _merged(
                self._beats.get(local_rank), Beat(local_rank, kind, after, step_of(status))
            )
        return True

    def _refuse(self, local_rank: int, sender: int | None, length: int) -> None:
        self._refused[local_rank] = self._refused.get(local_rank, 0) + 1
        if self._refused[local_rank] == 1:
            log("notify_refused", "warning", local_rank=local_rank, sender=sender, bytes=length)


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    pid = None
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= local_sockets.CREDENTIALS.size:
            pid = local_sockets.CREDENTIALS.unpack(data[: local_sockets.CREDENTIALS.size])[0]
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            for fd in array.array("i", data[: len(data) // 4 * 4]):
                os.close(fd)
    return pid


def _merged(old: Beat | None, new: Beat) -> Beat:
    if old is None:
        return new
    kind = max(old.kind, new.kind, key=_WEIGHT.__getitem__)
    after, step = (old.after if new.after is None else new.after), (old.step if new.step is None else new.step)
    return Beat(new.local_rank, kind, after, step)

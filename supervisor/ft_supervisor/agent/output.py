"""What workers print: passed on to the agent's own stdout and stderr, and the last of it kept.

A worker's stdout and stderr are pipes. One thread reads all of them and never writes, another one writes and may be
stuck for ever, as stdout may be a srun that hangs. In between is a bounded queue. While stdout moves, however slowly,
a full queue makes the workers wait, as they would without us; when it has not moved for a while, what does not fit is
dropped, so that no worker waits for a stdout that is dead.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from ft_supervisor.process.log import log

KEPT = 64 << 10
"""Bytes kept of what each rank printed last, and the length from which a line passes in pieces."""
_ENOUGH = 4 << 20
"""Bytes in the queue from which workers wait, while stdout moves."""
_MOST = 8 << 20
"""Bytes in the queue beyond which what comes is dropped."""
_PATIENCE = 1.0
"""Seconds after which a stdout that takes nothing is taken for dead, until it moves again."""
_TELL = 10.0
"""Seconds between two lines about what was dropped."""
_RELEASE = 0.1
"""Seconds that a release waits for stdout."""


class _Passing:
    """The queue to our own stdout and stderr, and the thread that empties it: the one writer, so that lines of
    different workers never mix."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._dropped = 0
        self._moved = self._told = time.monotonic()
        threading.Thread(target=self._run, daemon=True, name="workers' output").start()

    def put(self, fd: int, data: bytes) -> None:
        """Never waits."""
        with self._changed:
            if self._size >= _MOST:
                self._dropped += len(data)
                return
            if not self._waiting:
                self._moved = time.monotonic()
            self._waiting.append((fd, data))
            self._size += len(data)
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Until there is room in the queue, or no hope of any."""
        with self._changed:
            while self._size >= _ENOUGH and (wait := self._moved + _PATIENCE - time.monotonic()) > 0:
                self._changed.wait(wait)

    def flush(self, bound: float) -> bool:
        """Whether all is written within `bound` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, bound)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                fd, data = self._waiting[0]
            lost = len(data) - self._write(fd, data)
            with self._changed:
                self._waiting.popleft()
                self._size -= len(data)
                self._dropped += lost
                self._changed.notify_all()
            if not lost and self._dropped and self._moved - self._told >= _TELL:
                self._tell()

    def _tell(self) -> None:
        with self._changed:
            dropped, self._dropped, self._told = self._dropped, 0, self._moved
        log("output_dropped", "warning", bytes=dropped)

    def _write(self, fd: int, data: bytes) -> int:
        """Bytes written: fewer than there are if `fd` is closed, or its disk full."""
        view, at = memoryview(data), 0
        while at < len(data):
            try:
                at += os.write(fd, view[at : _cut(data, at)])
            except BlockingIOError:  # whoever shares our stdout may have made it so
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
                continue
            except OSError:
                break
            self._moved = time.monotonic()
        return at


def _cut(data: bytes, at: int) -> int:
    """The end of as many whole lines from `at` on as a pipe takes in one piece (pipe(7), PIPE_BUF); of one line if that
    is longer. So lines of other processes on the same pipe come between ours, not into them."""
    end = at + select.PIPE_BUF
    if end >= len(data):
        return len(data)
    last = data.rfind(b"\n", at, end)
    if last < 0:
        last = data.find(b"\n", end)
    return last + 1 if last >= 0 else len(data)


@dataclass
class _Stream:
    """The reading end of one worker's stdout or stderr; `rest` is the beginning of its next line."""

    local_rank: int
    fd: int
    to: int
    rest: bytes = b""


class Output:
    """For the main thread. `open` before workers are started, `started` after, `release` once they are gone."""

    def __init__(self, stdout: int = 1, stderr: int = 2) -> None:
        self._to = (stdout, stderr)
        self._lock = threading.Lock()  # over all below, and held for a moment only
        self._streams: dict[int, _Stream] = {}
        self._tails: dict[int, bytearray] = {}
        self._counts: dict[int, int] = {}
        self._write_ends: list[int] = []
        self._epoll = select.epoll()
        self._passing = _Passing()
        threading.Thread(target=self._read, daemon=True, name="workers' pipes").start()

    def open(self, local_ranks: Iterable[int]) -> dict[int, tuple[str, str]]:
        """File names, good in this process until `started`, that its workers' stdout and stderr are to be opened by.
        Raises OSError; `release` is due then too."""
        names = {}
        with self._lock:
            self._tails.clear()
            self._counts.clear()
            for local_rank in local_ranks:
                self._tails[local_rank], self._counts[local_rank] = bytearray(), 0
                out, err = (self._pipe(local_rank, to) for to in self._to)
                names[local_rank] = (out, err)
        return names

    def started(self) -> None:
        """The workers have opened their ends: ours are closed, or the pipes would never end."""
        for fd in self._write_ends:
            os.close(fd)
        self._write_ends.clear()

    def tail(self, local_rank: int) -> bytes:
        """The last that this rank printed, stdout and stderr as they came, at most KEPT bytes; kept until `open`."""
        return self.since(local_rank, 0)[1]

    def since(self, local_rank: int, position: int) -> tuple[int, bytes]:
        """What this rank printed after its first `position` bytes, as far as it is kept, and the position after it."""
        with self._lock:
            count = self._counts.get(local_rank, 0)
            new = min(KEPT, count - position)
            return count, bytes(self._tails[local_rank][-new:]) if new > 0 else b""

    def drain(self, local_rank: int, bound: float) -> None:
        """Read what is in the rank's pipes now, within `bound` seconds; more may come from who inherited them."""
        if not self._lock.acquire(timeout=bound):
            return
        try:
            for stream in list(self._streams.values()):
                if stream.local_rank == local_rank:
                    self._drain(stream)
        finally:
            self._lock.release()

    def release(self) -> None:
        """No worker is left: pass on what is left in the pipes and close them. Takes at most about 0.1 s."""
        self.started()
        with self._lock:
            for stream in list(self._streams.values()):
                self._drain(stream)
                self._end(stream)
        self._passing.flush(_RELEASE)

    def flush(self, bound: float) -> bool:
        """Whether all that was read is written within `bound` seconds. For a process that is about to leave."""
        return self._passing.flush(bound)

    def _pipe(self, local_rank: int, to: int) -> str:
        reading, writing = os.pipe()
        self._write_ends.append(writing)
        os.set_blocking(reading, False)
        self._streams[reading] = _Stream(local_rank, reading, to)
        self._epoll.register(reading, select.EPOLLIN)
        return f"/proc/self/fd/{writing}"

    def _read(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                self._passing.wait_for_room()
                with self._lock:
                    if (stream := self._streams.get(fd)) is not None:
                        self._take(stream, KEPT)

    def _drain(self, stream: _Stream) -> None:
        left = struct.unpack("i", fcntl.ioctl(stream.fd, termios.FIONREAD, bytes(4)))[0]
        while left > 0 and (taken := self._take(stream, min(left, KEPT))):
            left -= taken

    def _take(self, stream: _Stream, size: int) -> int:
        """Read at most `size` bytes; how many there were. Ends the stream at its end."""
        try:
            data = os.read(stream.fd, size)
        except BlockingIOError:
            return 0
        except OSError:  # no such error is known; the thread must go on with the other pipes
            data = b""
        if not data:
            self._end(stream)
            return 0
        self._counts[stream.local_rank] += len(data)
        tail = self._tails[stream.local_rank]
        tail += data
        if len(tail) > 2 * KEPT:
            del tail[:-KEPT]
        lines = stream.rest + data
        end = max(lines.rfind(b"\n"), lines.rfind(b"\r")) + 1  # progress bars never end their line
        if len(lines) - end >= KEPT:
            end = len(lines)
        stream.rest = lines[end:]
        if end:
            self._passing.put(stream.to, lines[:end])
        return len(data)

    def _end(self, stream: _Stream) -> None:
        if stream.rest:
            self._passing.put(stream.to, stream.rest + b"\n")  # what others print next is a line of its own
        self._epoll.unregister(stream.fd)
        del self._streams[stream.fd]
        os.close(stream.fd)

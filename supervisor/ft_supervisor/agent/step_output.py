"""Passes the workers' output on to the agent's own stdout and stderr, which Slurm makes the step's output.

One thread writes, so that lines of different workers never mix; it may be stuck for ever, as stdout may be a srun that
hangs. A line that is too long to be kept comes in pieces; where another worker's pieces come between, each piece ends a
line.
"""

from __future__ import annotations

import os
import re
import select
import stat
import time
from dataclasses import dataclass

from ft_supervisor.process.bounded_writer import BoundedWriter, write_some
from ft_supervisor.process.log import log

_PATIENCE = 1.0
"""Seconds after which a stdout that takes nothing counts as dead, until it moves again."""
_TELL = 10.0
"""Seconds between two log lines about dropped output."""
_CARRIAGE_RETURNS = re.compile(rb"\r+\n")


@dataclass(eq=False)
class StepStream:
    """One stream of a worker: the file descriptor to which it goes, and a prefix for its lines there."""

    fd: int
    prefix: bytes = b""


class StepOutput:
    """The step's output and the thread that writes it. `put` and `wait_for_room` are for one thread, `flush` is for
    any."""

    def __init__(self) -> None:
        self._writer: BoundedWriter[StepStream] = BoundedWriter("workers' output", self._write, _PATIENCE)
        self._unfinished: StepStream | None = None
        self._told = time.monotonic()
        self.wait_for_room = self._writer.wait_for_room

    def put(self, stream: StepStream, data: bytes) -> None:
        """Queue whole lines, or a piece of a long one. Never waits."""
        self._writer.put(stream, data)

    def flush(self, until: float) -> bool:
        """Return whether all is written before this moment of the monotonic clock. Dropped output is logged."""
        done = self._writer.flush(until)
        self._tell()
        return done

    def _write(self, stream: StepStream, data: bytes) -> int:
        other = self._unfinished
        if other is not None and other is not stream:
            self._push(other.fd, b"\n")
        if stream.prefix and not (data := _prefixed(data, stream.prefix, begins=other is not stream)):
            return 0
        self._unfinished = None if data.endswith((b"\n", b"\r")) else stream
        lost = len(data) - self._push(stream.fd, data)
        if not lost and time.monotonic() - self._told >= _TELL:
            self._tell()
        return lost

    def _tell(self) -> None:
        if dropped := self._writer.take_dropped():
            self._told = time.monotonic()
            log("output_dropped", "warning", bytes=dropped)

    def _push(self, fd: int, data: bytes) -> int:
        """Return the number of bytes written: fewer than given if `fd` is closed, or its disk full."""
        view, at = memoryview(data), 0
        whole = not _is_pipe(fd)
        while at < len(data):
            try:
                at += write_some(fd, view[at:] if whole else view[at : _cut(data, at)])
            except OSError:
                break
            self._writer.moved()
        return at


def _prefixed(data: bytes, prefix: bytes, *, begins: bool) -> bytes:
    """Put the prefix before each line; before the first only if it begins here. Text that a progress bar overwrites
    becomes a line."""
    if b"\r" in data:
        data = _CARRIAGE_RETURNS.sub(b"\n", data)
        data = (data.lstrip(b"\r") if begins else data).replace(b"\r", b"\n")
    if not data:
        return data
    inner = data[:-1].replace(b"\n", b"\n" + prefix) + data[-1:]
    return prefix + inner if begins else inner


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:  # closed: the write will fail
        return False


def _cut(data: bytes, at: int) -> int:
    """Return the end of as many whole lines from `at` on as a pipe takes in one piece (pipe(7), PIPE_BUF); of one line
    if that is longer. So lines of other processes on the same pipe come between our lines, not into them."""
    end = at + select.PIPE_BUF
    if end >= len(data):
        return len(data)
    last = data.rfind(b"\n", at, end)
    if last < 0:
        last = data.find(b"\n", end)
    return last + 1 if last >= 0 else len(data)

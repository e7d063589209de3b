"""Prints the output of `local` in a thread: neither a reader that stands still nor a full disk delays the job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from ft_supervisor.process.bounded_writer import BoundedWriter, write_some

_STDOUT, _STDERR = 1, 2
PATIENCE = 1.0
"""Seconds after which `local` does not wait any longer for a reader that takes nothing: later output is kept up to a
bound, and dropped beyond it."""
LAST = 5.0
"""Seconds without any progress after which the last lines are given up."""
MOST = 60.0
"""Seconds for a reader to take the last lines, in all."""


class Printer:
    """Writes lines to stdout, or to `fd`. All methods are for one thread; `on_closed` is called in another, once."""

    def __init__(self, on_closed: Callable[[], None], fd: int = _STDOUT) -> None:
        self._fd = fd
        self._on_closed = on_closed
        self._moved = time.monotonic()
        self._told = False
        self._lost = 0
        self.closed = False
        """Whether stdout has no reader any more."""
        self._writer: BoundedWriter[None] = BoundedWriter("stdout", self._write, PATIENCE)

    @property
    def has_room(self) -> bool:
        """Return False while so much waits for a slow reader that the sources of output had better wait, too."""
        return self._writer.has_room()

    def put(self, text: str) -> None:
        """Queue a line. Never waits."""
        if self.closed:
            return
        self._lost += self._writer.take_dropped()
        note = f"[{self._lost} bytes of output are lost here]\n".encode() if self._lost else b""
        if self._writer.put(None, note + f"{text}\n".encode(errors="backslashreplace")):
            self._lost = 0
        else:  # reported later, in one line for all that is lost in a row
            self._lost += self._writer.take_dropped() - len(note)

    def finish(self, enough: Callable[[], bool]) -> None:
        """Wait for the last lines, as long as they are read and `enough` returns False."""
        began = time.monotonic()
        while not self.closed and not self._writer.flush(time.monotonic() + 0.1):
            now = time.monotonic()
            if now - max(began, self._moved) >= LAST or now - began >= MOST or enough():
                return

    def _write(self, _: None, data: bytes) -> int:
        """Write, and return how many bytes are lost."""
        at = 0
        try:
            while at < len(data) and not self.closed:
                at += write_some(self._fd, data[at:])
                self._moved = time.monotonic()
                self._writer.moved()
        except BrokenPipeError:
            self.closed = True
            self._on_closed()
        except OSError as error:  # a full disk, for example; there may be room again later
            if not self._told:
                self._told = True
                with suppress(OSError):
                    os.write(_STDERR, f"ft-supervisor: stdout: {error.strerror}; the job goes on\n".encode())
        return len(data) - at

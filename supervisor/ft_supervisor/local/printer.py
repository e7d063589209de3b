"""What `local` prints, by a thread of its own: neither a reader that stands still nor a full disk holds up the job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from ft_supervisor.process.bounded_writer import BoundedWriter, write_some

_STDOUT, _STDERR = 1, 2
PATIENCE = 1.0
"""Seconds after which a reader that takes nothing is not waited for any longer: what comes then is kept up to a bound,
and dropped beyond that."""
LAST = 5.0
"""Seconds without any progress after which the last lines are given up."""
MOST = 60.0
"""Seconds that a reader gets for the last lines in all."""


class Printer:
    """Lines to stdout, or to `fd`. All methods are for one thread; `on_closed` is called in another, once."""

    def __init__(self, on_closed: Callable[[], None], fd: int = _STDOUT) -> None:
        self._fd = fd
        self._on_closed = on_closed
        self._moved = time.monotonic()
        self._told = False
        self._lost = 0
        self.closed = False
        """Whether nobody reads any more."""
        self._writer: BoundedWriter[None] = BoundedWriter("stdout", self._write, PATIENCE)

    @property
    def has_room(self) -> bool:
        """False while so much waits for a reader who is just slow that those who print had better wait, too."""
        return self._writer.has_room()

    def put(self, text: str) -> None:
        """Never waits."""
        if self.closed:
            return
        self._lost += self._writer.take_dropped()
        note = f"[{self._lost} bytes of output are lost here]\n".encode() if self._lost else b""
        if self._writer.put(None, note + f"{text}\n".encode(errors="backslashreplace")):
            self._lost = 0
        else:  # told later, in one line for all that is lost in a row
            self._lost += self._writer.take_dropped() - len(note)

    def finish(self, enough: Callable[[], bool]) -> None:
        """Wait for the last lines, as long as somebody reads them and it is not `enough`."""
        began = time.monotonic()
        while not self.closed and not self._writer.flush(time.monotonic() + 0.1):
            now = time.monotonic()
            if now - max(began, self._moved) >= LAST or now - began >= MOST or enough():
                return

    def _write(self, _: None, data: bytes) -> int:
        """How many bytes are lost."""
        at = 0
        try:
            while at < len(data) and not self.closed:
                at += write_some(self._fd, data[at:])
                self._moved = time.monotonic()
                self._writer.moved()
        except BrokenPipeError:
            self.closed = True
            self._on_closed()
        except OSError as error:  # its disk is full, say; there may be room again later
            if not self._told:
                self._told = True
                with suppress(OSError):
                    os.write(_STDERR, f"ft-supervisor: stdout: {error.strerror}; the job goes on\n".encode())
        return len(data) - at

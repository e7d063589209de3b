"""What workers have written only because they were looked at: torch's server writes a traceback to a file of the worker
before it sends it. So that a look is no sign of work of the worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ft_supervisor.evidence import kernel

MOST = 64 << 10
"""Bytes that one look may cost. What a worker writes beyond that during a look is its own."""


class Footprints:
    """By pid, in bytes as `kernel.written` counts them. Threads may share it, and looks at one process may overlap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes: dict[int, int] = {}
        self._open: dict[int, tuple[int, int]] = {}
        """Of processes that are looked at just now, how many looks there are, and what was written before the first."""

    @contextmanager
    def of(self, pid: int) -> Iterator[None]:
        """Look at a process in this block."""
        with self._lock:
            looks, before = self._open.get(pid, (0, -1))
            self._open[pid] = looks + 1, kernel.written(pid) if before < 0 else before
        try:
            yield
        finally:
            with self._lock:
                looks, before = self._open.pop(pid)
                if looks > 1:
                    self._open[pid] = looks - 1, before
                else:
                    self._bytes[pid] = self._bytes.get(pid, 0) + _cost(before, kernel.written(pid))

    def without(self, pid: int, written: int) -> int:
        """Return what the process has written by itself, of so many bytes in all."""
        with self._lock:
            own = written - self._bytes.get(pid, 0)
            return own - _cost(self._open[pid][1], written) if pid in self._open else own


def _cost(before: int, after: int) -> int:
    return min(MOST, max(0, after - before))

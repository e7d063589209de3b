"""A bounded queue and one thread that writes it to a file or pipe, which may be slow, full, or hang for ever.

While the output moves, however slowly, a full queue makes the reader of the workers' output wait, and so the workers
wait as they would without us. When the output has not moved for a while, data that does not fit is dropped, so that no
worker waits for an output that is dead.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

ENOUGH = 4 << 20
"""Bytes in the queue from which workers wait, while it moves."""
MOST = 8 << 20
"""Bytes in the queue beyond which new data is dropped."""
_EACH = 128
"""Bytes that a piece takes beyond its own: a worker may print one letter at a time."""


def write_some(fd: int, data: bytes | memoryview) -> int:
    """Wait until `fd` takes something, and return the number of bytes written. Raises OSError, for example when `fd` is
    closed or its disk full."""
    while True:
        try:
            return os.write(fd, data)
        except BlockingIOError:  # another process that shares it may have made it so
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


class BoundedWriter(Generic[T]):
    """A queue and its writing thread. `put` and `wait_for_room` are for one thread, `flush` is for any."""

    def __init__(self, name: str, write: Callable[[T, bytes], int], patience: float) -> None:
        """Start the thread. `write` gets each item in that thread, and returns how many bytes of it are lost. After
        `patience` seconds without progress the output counts as dead, until it moves again."""
        self._write = write
        self._patience = patience
        self._changed = threading.Condition()
        self._waiting: deque[tuple[T, bytes]] = deque()
        self._size = 0
        self._dropped = 0
        self._moved = time.monotonic()
        threading.Thread(target=self._run, daemon=True, name=name).start()

    @property
    def waiting(self) -> int:
        """Return the number of bytes that are still to be written."""
        with self._changed:
            return sum(len(data) for _, data in self._waiting)

    def put(self, target: T, data: bytes, *, small: bool = False) -> bool:
        """Queue `data`, and return whether it will be written; a `small` item always is. Never waits."""
        with self._changed:
            if self._size >= MOST and not small:
                self._dropped += len(data)
                return False
            if not self._waiting:
                self._moved = time.monotonic()
            self._waiting.append((target, data))
            self._size += len(data) + _EACH
            self._changed.notify_all()
        return True

    def has_room(self) -> bool:
        """Return whether there is room in the queue, or the output is dead."""
        with self._changed:
            return self._size < ENOUGH or self._moved + self._patience <= time.monotonic()

    def wait_for_room(self) -> None:
        """Wait until there is room in the queue, or the output is dead."""
        with self._changed:
            while self._size >= ENOUGH and (wait := self._moved + self._patience - time.monotonic()) > 0:
                self._changed.wait(wait)

    def flush(self, until: float) -> bool:
        """Wait until all is written, or until this moment of the monotonic clock. Return whether all is written."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, max(0.0, until - time.monotonic()))

    def moved(self) -> None:
        """Note that the output has taken something just now. For `write` to call."""
        self._moved = time.monotonic()

    def take_dropped(self) -> int:
        """Return how many bytes were dropped, or lost, since the last call."""
        with self._changed:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                target, data = self._waiting[0]
            lost = self._write(target, data)
            with self._changed:
                self._waiting.popleft()
                self._size -= len(data) + _EACH
                self._dropped += lost
                self._changed.notify_all()

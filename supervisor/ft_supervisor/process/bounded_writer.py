"""A bounded queue and one thread that writes it to a file or pipe, which may be slow, full, or hang for ever.

While the output moves, however slowly, a full queue makes the reader of the workers' output wait, and so the workers,
as they would without us. When the output has not moved for a while, what does not fit is dropped, so that no worker
waits for an output that is dead.
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
"""Bytes in the queue beyond which what comes is dropped."""
_EACH = 128
"""Bytes that a piece takes beyond its own: a worker may print one letter at a time."""


def write_some(fd: int, data: bytes | memoryview) -> int:
    """Waits until `fd` takes something. Bytes written. Raises OSError, if it is closed, say, or its disk full."""
    while True:
        try:
            return os.write(fd, data)
        except BlockingIOError:  # whoever shares it may have made it so
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


class BoundedWriter(Generic[T]):
    """`put` and `wait_for_room` are for one thread, `flush` for any."""

    def __init__(self, name: str, write: Callable[[T, bytes], int], patience: float) -> None:
        """`write` gets each item, in this writer's own thread, and returns how many bytes of it are lost. `patience`:
        seconds after which the output is taken for dead, until it moves again."""
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
        """Bytes that are still to be written."""
        with self._changed:
            return sum(len(data) for _, data in self._waiting)

    def put(self, target: T, data: bytes, *, small: bool = False) -> bool:
        """Whether it will be written; what is `small` always is. Never waits."""
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
        """Whether there is room in the queue, or no hope of any."""
        with self._changed:
            return self._size < ENOUGH or self._moved + self._patience <= time.monotonic()

    def wait_for_room(self) -> None:
        """Until there is room in the queue, or no hope of any."""
        with self._changed:
            while self._size >= ENOUGH and (wait := self._moved + self._patience - time.monotonic()) > 0:
                self._changed.wait(wait)

    def flush(self, until: float) -> bool:
        """Whether all is written before this moment of the monotonic clock."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, max(0.0, until - time.monotonic()))

    def moved(self) -> None:
        """For `write`: something has gone through just now."""
        self._moved = time.monotonic()

    def take_dropped(self) -> int:
        """How many bytes were dropped, or lost, since the last call."""
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

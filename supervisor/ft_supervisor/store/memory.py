"""A store in this process's memory with the contract of the real one, for tests: this project's and its users'."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from threading import Condition
from typing import Self

from ft_supervisor.store.base import StoreLost, number


class _Contents:
    def __init__(self) -> None:
        self.changed = Condition()
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, deque[bytes]] = defaultdict(deque)
        self.lost = False


class MemoryStore:
    """A Store in memory. May be used by several threads at once, also without clone."""

    def __init__(self) -> None:
        self._contents = _Contents()

    def lose(self) -> None:
        """Behave from now on, in all clones and blocked calls, as if the server were dead."""
        with self._contents.changed:
            self._contents.lost = True
            self._contents.changed.notify_all()

    def _living(self) -> _Contents:
        if self._contents.lost:
            raise StoreLost("the store was lost")
        return self._contents

    def push(self, queue: str, data: bytes) -> None:
        """See Store."""
        with self._contents.changed:
            self._living().queues[queue].append(bytes(data))
            self._contents.changed.notify_all()

    def pop(self, queue: str, timeout: float) -> bytes | None:
        """See Store."""
        until = time.monotonic() + timeout
        with self._contents.changed:
            while not self._living().queues[queue]:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._contents.changed.wait(left)
            return self._contents.queues[queue].popleft()

    def get(self, key: str) -> bytes | None:
        """See Store."""
        with self._contents.changed:
            return self._living().values.get(key)

    def set(self, key: str, data: bytes) -> None:
        """See Store."""
        with self._contents.changed:
            self._living().values[key] = bytes(data)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """See Store."""
        with self._contents.changed:
            values = self._living().values
            if values.get(key, b"") == expected:
                values[key] = bytes(desired)
            return values.get(key, b"")

    def counters(self, keys: Sequence[str]) -> list[int]:
        """See Store."""
        with self._contents.changed:
            values = self._living().values
            return [number(values.get(key, b"0")) for key in keys]

    def clone(self) -> Self:
        """See Store."""
        with self._contents.changed:
            twin = type(self)()
            twin._contents = self._living()
            return twin

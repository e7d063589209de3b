"""What a thread reads from a process, and waiting for more of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class BenchError(Exception):
    """Something did not happen that has to happen for a figure; the text says what."""


class Seen(Generic[T]):
    """A list that grows, for one writer and one reader."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._changed = threading.Condition()

    def add(self, item: T) -> None:
        """The writer's."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def wait(self, pick: Callable[[Sequence[T]], R | None], bound: float, what: str) -> R:
        """What `pick` makes of the items, as soon as that is not None. Raises BenchError after `bound` seconds."""
        found: R | None = None

        def looked() -> bool:
            nonlocal found
            found = pick(self._items)
            return found is not None

        with self._changed:
            if not self._changed.wait_for(looked, bound):
                raise BenchError(f"not seen within {bound:g} s: {what}")
        assert found is not None
        return found

"""A list that one thread fills from a process, while another waits for items."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class BenchError(Exception):
    """Raised when an event that a figure needs did not happen; the text names it."""


class GrowingList(Generic[T]):
    """A list that grows, for one writer and one reader."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._changed = threading.Condition()

    def add(self, item: T) -> None:
        """Append an item. For the writer."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def wait(self, pick: Callable[[Sequence[T]], R | None], bound: float, what: str) -> R:
        """Return the result of `pick` for the items, once it is not None. Raises BenchError after `bound` seconds."""
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

"""Simulated time: a heap of scheduled calls, one random stream, and the error for a broken invariant."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any


class Breach(AssertionError):
    """Raised when an invariant does not hold. `number`: its number in checks.py, or a word for another check."""

    def __init__(self, number: str, text: str) -> None:
        super().__init__(f"{number}: {text}")
        self.number = number


class Clockwork:
    """Runs scheduled calls in the order of their times, in seconds. The same seed and calls give the same world."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.history: list[str] | None = None
        """Lines for people; None where they are not kept."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, delay: float, deed: Callable[..., None], *arguments: Any) -> None:
        """Call `deed` in `delay` seconds."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay, self._count, deed, arguments))

    def at(self, time: float, deed: Callable[..., None], *arguments: Any) -> None:
        """Call `deed` at `time`, or at once if that is over."""
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, deed, arguments))

    def step(self) -> None:
        """Make the next scheduled call. Raises IndexError when there is none."""
        self.now, _, deed, arguments = heapq.heappop(self._heap)
        deed(*arguments)

    def between(self, low: float, high: float) -> float:
        """Return a random number of seconds from `low` to `high`."""
        return low + (high - low) * self.random.random()

    def note(self, who: str, what: object) -> None:
        """Add a line to the history, if it is kept."""
        if self.history is not None:
            self.history.append(f"{self.now:9.3f} {who:<12} {what}")

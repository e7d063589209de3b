"""How often it is told that something was not believed: however much of it comes, it fills no log."""

from __future__ import annotations

PAUSE = 10.0
"""Seconds between two lines of one kind."""


class Refusals:
    """What one place refuses; for one thread."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def due(self, kind: str, now: float) -> int | None:
        """One more of this kind, of which there are few, at `now` (seconds of any steady clock). Whether it is time for
        a line: of how many others none has told; None if it is too soon."""
        if now < self._next.get(kind, now):
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return None
        self._next[kind] = now + PAUSE
        return self._untold.pop(kind, 0)

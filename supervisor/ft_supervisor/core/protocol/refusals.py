"""Limits how often refused messages are logged, so that a flood of them does not fill the log."""

from __future__ import annotations

PAUSE = 10.0
"""Seconds between two lines of one kind."""


class Refusals:
    """The refusals of one receiver, counted by kind. For one thread."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def due(self, kind: str, now: float) -> int | None:
        """Count one more refusal of this kind at `now` (seconds of any monotonic clock). There are few kinds.

        Return None if it is too soon for another line of this kind. Otherwise a line is due for this refusal: return
        how many others since the last line were not logged.
        """
        if now < self._next.get(kind, now):
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return None
        self._next[kind] = now + PAUSE
        return self._untold.pop(kind, 0)

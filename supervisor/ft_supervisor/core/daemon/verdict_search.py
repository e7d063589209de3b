"""When to look for the run's verdict file: while the node's agent finds no coordinator, perhaps as the job is over."""

from __future__ import annotations

LOOK_PAUSE = 5.0
"""Seconds between two looks while the agent finds no coordinator."""

FIRST_PAUSE = 0.5
"""Seconds between the first two looks where the job may be over; doubled up to LOOK_PAUSE."""


class VerdictSearch:
    """All times in seconds. `joining`: whether the agent has no coordinator; nothing is looked for otherwise."""

    def __init__(self, now: float) -> None:
        self._joining = True
        self._looked = now
        self._pause = LOOK_PAUSE
        self._may_be_over = False

    def heard(self, joining: bool, may_be_over: bool, now: float) -> bool:
        """Take what the agent's Alive says. Return whether to look now.

        Where the job may be over, the first look is at once, and the next ones follow soon.
        """
        former, self._joining, self._may_be_over = self._may_be_over, joining, may_be_over and joining
        if not self._may_be_over:
            self._pause = LOOK_PAUSE
        elif not former:
            self._pause = FIRST_PAUSE / 2
            return self._look(now)
        return False

    def due(self, now: float) -> bool:
        """Return whether to look now; to be called at every tick."""
        return now - self._looked >= self._pause and self._look(now)

    def _look(self, now: float) -> bool:
        if self._joining:
            self._looked, self._pause = now, min(2 * self._pause, LOOK_PAUSE)
        return self._joining

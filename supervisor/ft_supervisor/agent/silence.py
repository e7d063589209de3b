"""Judging by one's own clock that nobody answers."""

from __future__ import annotations


class Silence:
    """For a loop that asks `over` at least every `beat` seconds: has there been no answer for `patience` seconds?

    Time in which the loop itself stood still is not held against the other side, whose answer may be there unread.
    """

    def __init__(self, patience: float, beat: float) -> None:
        self.due: float | None = None
        """When there will have been silence, as it looks now; None while nothing is expected."""
        self._patience = patience
        self._beat = beat
        self._answered = 0.0
        self._judged = 0.0

    def begin(self, now: float) -> None:
        """An answer has just come, and from now on more are expected."""
        self._answered = self._judged = now
        self.due = now + self._patience

    def end(self) -> None:
        """Nothing is expected any more."""
        self.due = None

    def over(self, answered: float, now: float) -> bool:
        """`answered`: when the newest answer came."""
        if self.due is None:
            return False
        if answered > self._answered:
            self._answered, self.due = answered, answered + self._patience
        stood_still = now - self._judged - self._beat
        self._judged = now
        if stood_still > 0:
            self.due = min(self.due + stood_still, now + self._patience)
        return now >= self.due

"""Decides, by the agent's own clock, that the connected store is silent."""

from __future__ import annotations


class Silence:
    """Tells when no answer has come for `patience` seconds, to a loop that asks `over` at least every `beat` seconds.

    Time in which the loop itself stood still is not counted: the answer may be there unread.
    """

    def __init__(self, patience: float, beat: float) -> None:
        self.due: float | None = None
        """When there will have been silence, as it looks now; None while no answer is expected."""
        self._patience = patience
        self._beat = beat
        self._answered = 0.0
        self._judged = 0.0

    def begin(self, now: float) -> None:
        """Expect answers from now on; one has just come."""
        self._answered = self._judged = now
        self.due = now + self._patience

    def end(self) -> None:
        """Expect no more answers."""
        self.due = None

    def over(self, answered: float, now: float) -> bool:
        """Return whether there is silence. `answered`: when the newest answer came."""
        if self.due is None:
            return False
        if answered > self._answered:
            self._answered, self.due = answered, answered + self._patience
        stood_still = now - self._judged - self._beat
        self._judged = now
        if stood_still > 0:
            self.due = min(self.due + stood_still, now + self._patience)
        return now >= self.due

"""How much of the observed time was lost, and to what. Pure; all times in seconds of one clock."""

from __future__ import annotations

from ft_supervisor.coordinator.metric_families import LOSSES


class LostTime:
    """`gap`: a longer one between two looks is time in which the observer stood still, and counts for nothing.

    `state`: what the time from the last look on is: one of LOSSES, "" for training, None for what is not counted.
    """

    def __init__(self, gap: float, now: float) -> None:
        self.state: str | None = None
        self.observed = 0.0
        self.lost = dict.fromkeys(LOSSES, 0.0)
        self._gap = gap
        self._at = now
        self._trained = 0.0
        """Since the training last began."""

    def until(self, now: float) -> None:
        """Count what has passed."""
        seconds, self._at = now - self._at, max(now, self._at)
        if self.state is None or not 0 < seconds <= self._gap:
            return
        self.observed += seconds
        if self.state:
            self.lost[self.state] += seconds
            self._trained = 0.0
        else:
            self._trained += seconds

    def noticed_late(self, seconds: float) -> None:
        """So much of what counted as training was none, as is known now."""
        late = min(seconds, self._trained)
        self.lost["detection"] += late
        self._trained -= late

"""Counts how much of the observed time was lost, by cause. Pure; all times are seconds of one clock."""

from __future__ import annotations

from ft_supervisor.coordinator.metric_families import LOSSES


class LostTime:
    """The time lost so far. `gap`: a longer time between two calls is not counted, as the process stood still.

    `state`: how the time since the last call of `until` counts: as one of LOSSES, "" for training, None for not at all.
    """

    def __init__(self, gap: float, now: float) -> None:
        self.state: str | None = None
        self.observed = 0.0
        self.lost = dict.fromkeys(LOSSES, 0.0)
        self._gap = gap
        self._at = now
        self._trained = 0.0
        """Seconds since the training last began."""

    def until(self, now: float) -> None:
        """Count the time that has passed since the last call."""
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
        """Move so many seconds, at most, from training to detection: a failure became known only now."""
        late = min(seconds, self._trained)
        self.lost["detection"] += late
        self._trained -= late

"""Compares this node's clock with the coordinator's, for people who compare logs. It only warns."""

from __future__ import annotations

from ft_supervisor.process.log import log

LOOKS = 20
"""Reads of the pulse before a clock is called fast: each pulse was written some time before it is read."""


class ClockWatch:
    """Warns once per connection. `tolerated`: seconds."""

    def __init__(self, tolerated: float) -> None:
        self._tolerated = tolerated
        self._last = 0.0
        self._newest = float("inf")
        self._looks = 0

    def look(self, theirs: float, ours: float) -> None:
        """Compare the time at which the coordinator wrote its pulse, `theirs` by its clock, with `ours`, the time now
        by this node's clock: seconds since the epoch."""
        if theirs == self._last or self._looks < 0:
            return
        self._last, self._looks = theirs, self._looks + 1
        self._newest = min(self._newest, ours - theirs)
        if self._newest < -self._tolerated or (self._looks >= LOOKS and self._newest > self._tolerated):
            self._looks = -1
            word = "behind" if self._newest < 0 else "ahead of"
            log("clock", "warning", reason=f"{abs(self._newest):.1f} s {word} the coordinator's")

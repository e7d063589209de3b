"""A simulated process, which can be stopped (SIGSTOP), continued and killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.clockwork import Clockwork


class Process:
    """A process. Calls for a stopped process wait until it goes on; calls for a dead one are dropped."""

    def __init__(self, clock: Clockwork, beat: float) -> None:
        self.clock = clock
        self.alive = True
        self.frozen = 0
        self.thaws = 0
        self._beat = beat
        self._beat_is_due = False
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._stopped_at = 0.0
        self._stood_still = 0.0

    # -- for subclasses

    def on_beat(self) -> None:
        """Do the periodic work; called every heartbeat, and late after a freeze."""

    def on_thaw(self, stood_still: float) -> None:
        """Handle the end of a freeze that lasted so many seconds; called before all waiting calls."""

    events_first = False
    """Whether all waiting calls are made before the late beat after a freeze. Otherwise the order is random."""

    def awake(self) -> float:
        """Return the seconds since the world's beginning, without those in which the process stood still."""
        return self.clock.now - self._stood_still

    # -- for the world

    def do(self, deed: Callable[..., None], *arguments: Any) -> None:
        """Call `deed` in this process: now, when it goes on, or never if it is dead."""
        if self.frozen:
            self._waiting.append((deed, arguments))
        elif self.alive:
            deed(*arguments)

    def start_beating(self) -> None:
        """Begin the heartbeats: the first one now, the others `beat` seconds apart."""
        if not self.alive:
            return
        if self.frozen:
            self._beat_is_due = True
            return
        self.clock.after(self._beat, self.start_beating)
        self.on_beat()

    def freeze(self, seconds: float) -> None:
        """Stop the process (SIGSTOP), and continue it (SIGCONT) after `seconds`."""
        if not self.frozen:
            self._stopped_at = self.clock.now
        self.frozen += 1
        self.clock.after(seconds, self._thaw)

    def _thaw(self) -> None:
        self.frozen -= 1
        if self.frozen or not self.alive:
            return
        self.thaws += 1
        self._stood_still += self.clock.now - self._stopped_at
        self.on_thaw(self.clock.now - self._stopped_at)
        beat_first = not self.events_first and self.clock.random.random() < 0.5
        if beat_first:
            self._late_beat()
        waiting, self._waiting = self._waiting, []
        for deed, arguments in waiting:
            self.do(deed, *arguments)
        if not beat_first:
            self._late_beat()

    def _late_beat(self) -> None:
        if self._beat_is_due:
            self._beat_is_due = False
            self.start_beating()

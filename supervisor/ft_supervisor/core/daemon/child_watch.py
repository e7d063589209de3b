"""What the daemon knows of one of its two children: whether it lives, when to start the next one, when to kill it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ft_supervisor.core.transitions import check_transition

START_BOUND = 120.0
"""Seconds from a child's start to its first Alive: importing torch from a cold file system of a large cluster."""

KILL_AGAIN = 5.0
"""Seconds until a child that SIGKILL has not ended gets another one."""

STEADY_LIFE = 60.0
"""Seconds that a child has to live for its end not to count as one crash in a row."""


class Life(StrEnum):
    """Where a child is in its life."""

    ABSENT = "absent"
    STARTING = "starting"
    """It has been started, and has not sent its first Alive."""
    ALIVE = "alive"
    DOOMED = "doomed"
    """It is killed at `kill_at`, unless it ends before."""


TRANSITIONS: Mapping[Life, Mapping[Life, str]] = {
    Life.ABSENT: {Life.STARTING: "it is started"},
    Life.STARTING: {
        Life.ALIVE: "its first Alive",
        Life.DOOMED: "it is to be killed",
        Life.ABSENT: "it has exited",
    },
    Life.ALIVE: {Life.DOOMED: "it is to be killed", Life.ABSENT: "it has exited"},
    Life.DOOMED: {Life.ABSENT: "it has exited"},
}


class ChildWatch:
    """Watches one child after another. All times in seconds.

    `silence`: a child that is silent for so long hangs. `pause`: before the n-th start in a row, the first of the two
    times 2**n, at most the second; there is none before the first start.
    """

    def __init__(self, silence: float, pause: tuple[float, float]) -> None:
        self.life = Life.ABSENT
        self.incarnation = 0
        self.crashes = 0
        """How many children in a row have ended soon after their start."""
        self._alive: float | None = None
        """When the last Alive came; None until the first."""
        self._kill_at: float | None = None
        self._bound = silence
        self._pause = pause
        self._spawned = 0.0
        self._spawn_at: float | None = None

    @property
    def lives(self) -> bool:
        """Whether there is a child, for as long as its exit has not been reported."""
        return self.life is not Life.ABSENT

    @property
    def doomed(self) -> bool:
        """Whether it is to be killed, now or later."""
        return self.life is Life.DOOMED

    def validate(self) -> None:
        """Raise AssertionError where the fields contradict the state."""
        assert (self._kill_at is not None) == self.doomed, self.life
        assert (self._alive is None) >= (self.life in (Life.ABSENT, Life.STARTING)), self.life
        assert self.incarnation > 0 or not self.lives, self.life

    def spawn(self, now: float) -> bool:
        """Return whether a child is to be started now: there is none, and its time has come."""
        if self.lives or (self._spawn_at is not None and now < self._spawn_at):
            return False
        self._become(Life.STARTING)
        self.incarnation += 1
        self._spawned = now
        return True

    def heard(self, now: float) -> None:
        """Take its Alive; one that comes after its exit changes nothing."""
        if self.life is Life.STARTING:
            self._become(Life.ALIVE)
        if self.lives:
            self._alive = now

    def exit(self, now: float) -> None:
        """Take its exit. The more exits in a row came soon after a start, the later is the next start."""
        self._become(Life.ABSENT)
        self.crashes = 1 if now - self._spawned >= STEADY_LIFE else self.crashes + 1
        first, longest = self._pause
        self._alive, self._kill_at = None, None
        self._spawn_at = now + (0.0 if self.crashes == 1 else min(longest, first * 2**self.crashes))

    def kill(self, at: float) -> None:
        """Have it killed then, whatever was set before. Does nothing without a child."""
        if self.lives:
            if not self.doomed:
                self._become(Life.DOOMED)
            self._kill_at = at

    def is_due(self, now: float) -> bool:
        """Return whether it is to be killed now."""
        if self._kill_at is None or now < self._kill_at:
            return False
        self._kill_at = now + KILL_AGAIN
        return True

    def forgive(self, seconds: float, now: float) -> None:
        """Do not count these seconds, in which the daemon itself stood still, as silence."""
        self._alive = None if self._alive is None else min(self._alive + seconds, now)

    def silence(self, now: float) -> float:
        """Return the seconds since its last Alive, or since its start."""
        return now - (self._spawned if self._alive is None else self._alive)

    def hangs(self, now: float) -> bool:
        """Return whether it is silent for too long."""
        return self.lives and self.silence(now) >= (START_BOUND if self._alive is None else self._bound)

    def _become(self, life: Life) -> None:
        check_transition(TRANSITIONS, self.life, life)
        self.life = life

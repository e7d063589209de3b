"""What the daemon knows of one of its two children: whether it lives, when to start the next, and when to kill it."""

from __future__ import annotations

START_BOUND = 120.0
"""Seconds from a child's start to its first Alive: importing torch from a cold file system of a large cluster."""

KILL_AGAIN = 5.0
"""Seconds until a child that SIGKILL has not ended gets another."""

STEADY = 60.0
"""Seconds that a child has to live for its end not to be one of a row."""


class Keeper:
    """All times in seconds. `silence`: after so long a child hangs. `pause`: before the n-th start in a row, the first
    of them times 2**n, at most the second; none before the first start."""

    def __init__(self, silence: float, pause: tuple[float, float]) -> None:
        self.lives = False
        self.incarnation = 0
        self.crashes = 0
        """How often in a row it has ended soon."""
        self.alive: float | None = None
        """When it last said so; None until it has."""
        self.kill_at: float | None = None
        """When its time is up; None while nobody has set it."""
        self._bound = silence
        self._pause = pause
        self._spawned = 0.0
        self._spawn_at: float | None = None

    def spawn(self, now: float) -> bool:
        """Whether one is to be started now: there is none, and its time has come."""
        if self.lives or (self._spawn_at is not None and now < self._spawn_at):
            return False
        self.incarnation += 1
        self.lives, self.alive, self.kill_at, self._spawned = True, None, None, now
        return True

    def exit(self, now: float) -> None:
        """It is gone; the more often in a row, the longer until the next."""
        self.crashes = 1 if now - self._spawned >= STEADY else self.crashes + 1
        first, longest = self._pause
        self.kill_at = None
        self.lives, self._spawn_at = False, now + (0.0 if self.crashes == 1 else min(longest, first * 2**self.crashes))

    def is_due(self, now: float) -> bool:
        """Whether it is to be killed now."""
        if self.kill_at is None or now < self.kill_at:
            return False
        self.kill_at = now + KILL_AGAIN
        return True

    def forgive(self, seconds: float, now: float) -> None:
        """Time in which the daemon itself stood still counts against nobody."""
        self.alive = None if self.alive is None else min(self.alive + seconds, now)

    def silence(self, now: float) -> float:
        """For how long nothing has been heard of it."""
        return now - (self._spawned if self.alive is None else self.alive)

    def hangs(self, now: float) -> bool:
        """Whether that is too long."""
        return self.lives and self.silence(now) >= (START_BOUND if self.alive is None else self._bound)

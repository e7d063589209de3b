"""Notices workers that crash at their start, again and again, on every node: another restart would not help. Pure.

Two cycles in a row, the first and the second of their kind, have to end so: within AT_START of their beginning a worker
exits with the same code and says the same, and nothing else goes wrong. In the second one every node of the cycle has
to report it, so the other nodes get HOLD before they are stopped. One that reports nothing, or something else, is a
reason to go on; so is any sign that the job has ever done something.

A successor begins anew, and needs two more cycles: what was counted before a takeover does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from ft_supervisor.core.coordinator.policy import Trouble
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.worker_words import what_it_said

AT_START = 20.0
"""Seconds from a cycle's beginning to a crash at its start: enough for torch from a cold file system, and for an error
in the script's arguments or imports after that. Workers that live longer have usually done something."""
HOLD = 2.0
"""Seconds for the other nodes to crash as well, before they are stopped: their workers' starts differ by as much."""
_NUMBERS = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class _Crash:
    """How a worker has ended. `said`: without numbers, which may be its rank, its pid or the time."""

    exit_code: int
    said: str


class StartCrash:
    """Of one coordinator's term: for one failed cycle after the other, `begin` starts the next one's. `enabled`: the
    policy's fail_fast. All times in seconds."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._former: _Crash | None = None
        """How the workers of the cycle before have crashed at their start; None if they have not."""
        self._crash: _Crash | None = None
        """The same of this cycle."""
        self._missing: set[int] = set()
        """Nodes of this cycle whose workers have not crashed."""
        self._until = -inf

    def begin(self, trouble: Trouble, group: Collection[int], age: float | None) -> None:
        """The cycle of the nodes `group` cannot go on, `age` seconds after its beginning (None: not known)."""
        self._former, self._crash = self._crash, None
        self._missing, self._until = set(group), -inf
        if age is None or age >= AT_START:
            self.moved()
        if self._enabled:
            self._crash = _crash(trouble)
            self.add(trouble)

    def hold(self, now: float) -> float:
        """Leave the other nodes alone, if their workers may crash in the same way. Return for how many seconds, at
        most; `release` tells when it is over."""
        if not self.recurs or not self._missing:
            return 0.0
        self._until = now + HOLD
        return HOLD

    def add(self, trouble: Trouble) -> None:
        """One more trouble of this cycle."""
        if self._crash is not None and _crash(trouble) == self._crash and trouble.infra_rank is not None:
            self._missing.discard(trouble.infra_rank)
        else:
            self._crash = None

    def moved(self) -> None:
        """The job has made progress, or may have: from now on no crash is one of a job that never did anything."""
        self._enabled = False

    @property
    def recurs(self) -> bool:
        """Whether all that is known of this cycle is a crash at the start like that of the cycle before."""
        return self._enabled and self._crash is not None and self._crash == self._former

    @property
    def everywhere(self) -> bool:
        """Whether it recurs on every node of the cycle."""
        return self.recurs and not self._missing

    def release(self, now: float) -> bool:
        """Return True once, when the other nodes have to be stopped after all."""
        if self._until == -inf or (now < self._until and self.recurs and self._missing):
            return False
        self._until = -inf
        return True


def reason(trouble: Trouble) -> str:
    """Return why the job ends whose workers crash like this one everywhere."""
    failure = trouble.failure
    said = "" if failure is None else what_it_said(failure) or f"exit code {failure.exit_code}"
    return f"fails at once, the same way, on all nodes: {said}"


def _crash(trouble: Trouble) -> _Crash | None:
    failure = trouble.failure
    if failure is None or trouble.cause is not Cause.EXIT or failure.local_rank < 0 or failure.exit_code is None:
        return None
    return _Crash(failure.exit_code, _NUMBERS.sub("#", what_it_said(failure)))

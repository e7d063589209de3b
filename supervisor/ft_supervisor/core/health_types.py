"""Health checks as data: the rounds that a daemon runs, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ft_supervisor.core.settings import Check, When

DISK = "disk"
GPU = "gpu"
WORKERS = "workers"
"""Nothing that is run: an agent has failed it that could not start its workers."""
BUILT_IN_TIMEOUT = 10.0
PAUSE = 1.0
"""Seconds between two attempts of one check."""
KILL_TIME = 2.0
"""Seconds that the end of an attempt may take: SIGKILL to all that it has started, until nothing of it is left."""
START_TIME = 10.0
"""Seconds until a check has been started, and its result has been heard, on a machine with much to do."""


class Result(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNCHECKED = "unchecked"
    """It could not be done, which says nothing of the node."""


@dataclass(frozen=True)
class CheckOutcome:
    """One check's result, after `attempts`. `reason` is one line; "" if it has passed."""

    check: str
    result: Result
    reason: str = ""
    attempts: int = 1


@dataclass(frozen=True)
class Round:
    """`checks` to be run now, at the same time; built in is one without a command. `cycle` waits for the results; ""
    where none does."""

    number: int
    when: When
    checks: tuple[Check, ...]
    cycle: str = ""

    @property
    def bound(self) -> float:
        """Seconds that it takes at most."""
        return bound(self.checks)


def bound(checks: Sequence[Check]) -> float:
    """Seconds that these checks take at most, with their retries, when they run at the same time."""
    return max((time_allowed(check) for check in checks), default=0.0)


def time_allowed(check: Check) -> float:
    """Seconds that one check takes at most, with its retries."""
    return START_TIME + (1 + check.retries) * (check.timeout + KILL_TIME) + check.retries * PAUSE

"""Health checks as data: the rounds that a daemon runs, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ft_supervisor.core.protocol.settings import Check, When

DISK = "disk"
GPU = "gpu"
WORKERS = "workers"
"""The check's name of a node whose agent could not start its workers. No command is run for it."""
BUILT_IN_TIMEOUT = 10.0
PAUSE = 1.0
"""Seconds between two attempts of one check."""
KILL_TIME = 2.0
"""Seconds that the end of an attempt may take: from SIGKILL to all its processes until none is left."""
START_TIME = 10.0
"""Seconds for the start of a check and for the delivery of its result, on a busy machine."""


class Result(StrEnum):
    """Result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNCHECKED = "unchecked"
    """The check could not be done; the node may be healthy."""


@dataclass(frozen=True)
class CheckOutcome:
    """One check's result, after `attempts`. `reason` is one line; "" if it has passed."""

    check: str
    result: Result
    reason: str = ""
    attempts: int = 1


@dataclass(frozen=True)
class Round:
    """A round of `checks` that run at the same time; a check without a command is a built-in one. `cycle`: the cycle
    that waits for the results, "" if none does."""

    number: int
    when: When
    checks: tuple[Check, ...]
    cycle: str = ""

    @property
    def bound(self) -> float:
        """The seconds that the round takes at most."""
        return bound(self.checks)


def bound(checks: Sequence[Check]) -> float:
    """Return the seconds that these checks take at most, with their retries, when they run at the same time."""
    return max((time_allowed(check) for check in checks), default=0.0)


def time_allowed(check: Check) -> float:
    """Return the seconds that one check takes at most, with its retries."""
    return START_TIME + (1 + check.retries) * (check.timeout + KILL_TIME) + check.retries * PAUSE

"""A node's health checks: which are due, and what their results mean for the node.

A round is the checks of one occasion, run at the same time; there is one round at a time. What runs them is in
daemon/checks.py. Once a check has excluded the node no more are due: excluded is for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ft_supervisor.core.model import Problem
from ft_supervisor.core.settings import Check, Health, OnFail, When
from ft_supervisor.core.words import one_line

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
class Outcome:
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


@dataclass(frozen=True)
class Finding:
    """News of one check, for the log: what it does to the node now, None if the check passes again."""

    check: str
    effect: OnFail | None
    reason: str


def bound(checks: Sequence[Check]) -> float:
    """Seconds that these checks take at most, with their retries, when they run at the same time."""
    return max((time_allowed(check) for check in checks), default=0.0)


def time_allowed(check: Check) -> float:
    """Seconds that one check takes at most, with its retries."""
    return START_TIME + (1 + check.retries) * (check.timeout + KILL_TIME) + check.retries * PAUSE


def built_in(settings: Health) -> tuple[Check, ...]:
    """Those that nobody has to write. Whoever runs them knows their commands."""
    disk = Check(DISK, (), BUILT_IN_TIMEOUT, when=(When.START, When.STANDBY), on_fail=settings.disk)
    gpu = Check(GPU, (), BUILT_IN_TIMEOUT, when=tuple(When), on_fail=settings.gpu or OnFail.WARN)
    return (*((disk,) if settings.min_free is not None else ()), *((gpu,) if settings.gpu is not None else ()))


class HealthMachine:
    """Ask `due` at every tick and after `ask` and `results`; what it returns is to be run, and answered by `results`.

    `excluded`: what has made the node unfit, for good. `running`: the round whose results are still to come.
    """

    def __init__(self, settings: Health) -> None:
        self._checks = (*built_in(settings), *settings.checks)
        self._interval = settings.interval
        self._number = 0
        self._start_due = bool(self._of(When.START))
        self._waiting = ""
        self._ended: float | None = None
        self._last: dict[str, Result] = {}
        self.ready = not self._start_due
        """Whether the checks at the start are over."""
        self.running: Round | None = None
        self.excluded: Finding | None = None

    @property
    def problem(self) -> Problem | None:
        """What has made the node unfit, in the form in which other processes and nodes hear of it."""
        return None if self.excluded is None else Problem(self.excluded.check, self.excluded.reason)

    @property
    def at_start(self) -> tuple[Check, ...]:
        """The checks that run at the start."""
        return self._of(When.START)

    @property
    def bound(self) -> float:
        """Seconds after an `ask` in which its answer comes at most: a round that is running goes first, and at the
        beginning that of the start."""
        before = self.running.bound if self.running else bound(self._of(When.START)) if self._start_due else 0.0
        return before + bound(self._of(When.BEFORE_CYCLE))

    def ask(self, cycle: str) -> bool:
        """The node is to run `cycle` unless a check says no. Whether that has to wait for `results` to name the cycle;
        if not, `excluded` is the answer at once. Of several that wait the newest counts."""
        if self.excluded is not None or not (self._of(When.BEFORE_CYCLE) or not self.ready):
            return False
        if self.running is None or self.running.cycle != cycle:
            self._waiting = cycle
        return True

    def due(self, now: float, standby: bool) -> Round | None:
        """The round to begin now. `standby`: whether the node is one."""
        if self.running is not None or self.excluded is not None:
            return None
        if self._start_due:
            self._start_due = False
            self.running = self._round(When.START)
        elif self._waiting:
            cycle, self._waiting = self._waiting, ""
            self.running = self._round(When.BEFORE_CYCLE, cycle)
        elif standby and self._of(When.STANDBY) and (self._ended is None or now >= self._ended + self._interval):
            self.running = self._round(When.STANDBY)
        return self.running

    def results(self, number: int, outcomes: Sequence[Outcome], now: float) -> tuple[list[Finding], str]:
        """What is new, and the cycle that is answered by it, "" if none is. A round that is not running changes
        nothing; a check of it without an outcome has failed."""
        round_ = self.running
        if round_ is None or round_.number != number:
            return [], ""
        self.running, self._ended = None, now
        found = {outcome.check: outcome for outcome in outcomes}
        missing = Outcome("", Result.FAILED, "there is no result of it")
        judged = [self._judge(check, found.get(check.name, missing)) for check in round_.checks]
        news = [finding for finding in judged if finding is not None]
        self.excluded = next((finding for finding in news if finding.effect is OnFail.EXCLUDE), None)
        self.ready = True
        return news, self._answered(round_)

    def _answered(self, round_: Round) -> str:
        """The cycle that has to wait no longer: its own round is over, or there is nothing to wait for."""
        if self._waiting and (self.excluded is not None or not self._of(When.BEFORE_CYCLE)):
            cycle, self._waiting = self._waiting, ""
            return cycle
        return round_.cycle

    def _judge(self, check: Check, outcome: Outcome) -> Finding | None:
        """None if it is as it was the last time. Its reason may change all the time: bytes that are free, say."""
        before = self._last.get(check.name, Result.PASSED)
        self._last[check.name] = outcome.result
        if outcome.result is before:
            return None
        match outcome.result:
            case Result.PASSED:
                return Finding(check.name, None, f"health check {check.name} passes again")
            case Result.UNCHECKED:
                why = one_line(f"health check {check.name} was not done: {outcome.reason}")
                return Finding(check.name, OnFail.WARN, why)
            case Result.FAILED:
                times = f" {outcome.attempts} times" if outcome.attempts > 1 else ""
                why = one_line(f"health check {check.name} failed{times}: {outcome.reason}")
                return Finding(check.name, check.on_fail, why)

    def _round(self, when: When, cycle: str = "") -> Round:
        self._number += 1
        return Round(self._number, when, self._of(when), cycle)

    def _of(self, when: When) -> tuple[Check, ...]:
        return tuple(check for check in self._checks if when in check.when)

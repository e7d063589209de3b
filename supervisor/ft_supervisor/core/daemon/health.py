"""A node's health checks: which are due, and what their results mean for the node.

A round is the checks of one occasion, run at the same time; there is one round at a time. daemon/checks.py runs them.
Once a check has excluded the node no more are due: the exclusion is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ft_supervisor.core.protocol.health_types import BUILT_IN_TIMEOUT, DISK, GPU, CheckOutcome, Result, Round, bound
from ft_supervisor.core.protocol.model import Problem
from ft_supervisor.core.protocol.settings import Check, Health, OnFail, When
from ft_supervisor.core.words import one_line


@dataclass(frozen=True)
class Finding:
    """News of one check, for the log: what it does to the node now, None if the check passes again."""

    check: str
    effect: OnFail | None
    reason: str


def built_in(settings: Health) -> tuple[Check, ...]:
    """Return the checks that need no configuration. daemon/checks.py has their commands."""
    disk = Check(DISK, (), BUILT_IN_TIMEOUT, when=(When.START, When.STANDBY), on_fail=settings.disk)
    gpu = Check(GPU, (), BUILT_IN_TIMEOUT, when=tuple(When), on_fail=settings.gpu or OnFail.WARN)
    return (*((disk,) if settings.min_free is not None else ()), *((gpu,) if settings.gpu is not None else ()))


class HealthMachine:
    """Call `due` at every tick and after `ask` and `results`: it returns a round to run, which `results` answers.

    `excluded`: the finding that has made the node unfit, for good. `running`: the round without results so far.
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
        """The finding that has made the node unfit, in the form in which it is sent to other processes and nodes."""
        return None if self.excluded is None else Problem(self.excluded.check, self.excluded.reason)

    @property
    def at_start(self) -> tuple[Check, ...]:
        """The checks that run at the start."""
        return self._of(When.START)

    @property
    def bound(self) -> float:
        """Seconds until the answer to an `ask` at most: a running round goes first, and at the beginning the checks at
        the start."""
        before = self.running.bound if self.running else bound(self._of(When.START)) if self._start_due else 0.0
        return before + bound(self._of(When.BEFORE_CYCLE))

    def ask(self, cycle: str) -> bool:
        """The node is to run `cycle` unless a check fails. Returns whether that has to wait until `results` returns the
        cycle; if not, `excluded` is the answer at once. Of several cycles that wait the newest counts."""
        if self.excluded is not None or not (self._of(When.BEFORE_CYCLE) or not self.ready):
            return False
        if self.running is None or self.running.cycle != cycle:
            self._waiting = cycle
        return True

    def due(self, now: float, standby: bool) -> Round | None:
        """Return the round to begin now, or None. `standby`: whether the node is a standby."""
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

    def results(self, number: int, outcomes: Sequence[CheckOutcome], now: float) -> tuple[list[Finding], str]:
        """Take a round's outcomes. Returns the new findings and the cycle that they answer, "" if none.

        A round that is not running changes nothing. A check without an outcome has failed.
        """
        round_ = self.running
        if round_ is None or round_.number != number:
            return [], ""
        self.running, self._ended = None, now
        found = {outcome.check: outcome for outcome in outcomes}
        missing = CheckOutcome("", Result.FAILED, "there is no result of it")
        judged = [self._judge(check, found.get(check.name, missing)) for check in round_.checks]
        news = [finding for finding in judged if finding is not None]
        self.excluded = next((finding for finding in news if finding.effect is OnFail.EXCLUDE), None)
        self.ready = True
        return news, self._answered(round_)

    def _answered(self, round_: Round) -> str:
        """Return the cycle that need not wait any more: its own round is over, or it needs none."""
        if self._waiting and (self.excluded is not None or not self._of(When.BEFORE_CYCLE)):
            cycle, self._waiting = self._waiting, ""
            return cycle
        return round_.cycle

    def _judge(self, check: Check, outcome: CheckOutcome) -> Finding | None:
        """Return a finding if the result has changed. The reason may change each time, for example the free bytes."""
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

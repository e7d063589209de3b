"""Tests which health checks are due, and the effects of their results on the node."""

from __future__ import annotations

import pytest

from ft_supervisor.core.daemon.health import HealthMachine, built_in
from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.health_types import (
    DISK,
    GPU,
    KILL_TIME,
    PAUSE,
    START_TIME,
    CheckOutcome,
    Result,
    Round,
    bound,
)
from ft_supervisor.core.protocol.settings import Check, Health, OnFail, When

START, BEFORE, STANDBY = When.START, When.BEFORE_CYCLE, When.STANDBY
PASSED, FAILED, UNCHECKED = Result.PASSED, Result.FAILED, Result.UNCHECKED


def check(name: str, *when: When, on_fail: OnFail = OnFail.EXCLUDE, timeout: float = 10.0, retries: int = 0) -> Check:
    return Check(name, ("true",), timeout, retries, when, on_fail)


def health(*checks: Check, interval: float = 300.0) -> HealthMachine:
    return HealthMachine(Health(checks, interval, min_free=None))


def finish(machine: HealthMachine, now: float, **results: Result) -> tuple[list[tuple[str, OnFail | None, str]], str]:
    """End the running round: all checks have passed, except for the named ones. Return the findings and the cycle."""
    assert machine.running is not None
    outcomes = [
        CheckOutcome(c.name, results.get(c.name, PASSED), "why" if c.name in results else "")
        for c in machine.running.checks
    ]
    news, cycle = machine.results(machine.running.number, outcomes, now)
    return [(finding.check, finding.effect, finding.reason) for finding in news], cycle


def names(round_: Round | None) -> tuple[When, list[str]] | None:
    return None if round_ is None else (round_.when, [check.name for check in round_.checks])


ALL = check("all", START, BEFORE, STANDBY)


def test_the_start_comes_first_and_once() -> None:
    machine = health(check("a", START), check("b", BEFORE), ALL)
    ready = [machine.ready]
    assert names(machine.due(5, standby=True)) == (START, ["a", "all"])
    assert machine.due(6, standby=True) is None
    ready.append(machine.ready)
    assert finish(machine, 7) == ([], "")
    assert [*ready, machine.ready] == [False, False, True]
    assert machine.due(7, standby=True) is None
    assert machine.due(8, standby=False) is None


def test_without_checks_nothing_is_due_and_every_cycle_may_begin() -> None:
    machine = health()
    assert machine.ready
    assert machine.due(0, standby=True) is None
    assert not machine.ask("0.1")
    assert machine.excluded is None
    assert machine.bound == 0


def test_a_standby_is_looked_at_every_interval_after_the_end_of_the_last_round() -> None:
    machine = health(check("a", STANDBY), check("s", START), interval=100)
    machine.due(0, standby=True)
    finish(machine, 20)
    assert machine.due(119.9, standby=True) is None
    assert machine.due(500, standby=False) is None
    assert names(machine.due(500, standby=True)) == (STANDBY, ["a"])
    assert machine.due(601, standby=True) is None
    finish(machine, 602)
    assert machine.due(701, standby=True) is None
    assert names(machine.due(702, standby=True)) == (STANDBY, ["a"])


def test_the_round_of_checks_before_a_cycle_decides_about_it() -> None:
    machine = health(check("a", BEFORE))
    assert machine.ask("0.1")
    round_ = machine.due(0, standby=False)
    assert names(round_) == (BEFORE, ["a"]) and round_ and round_.cycle == "0.1"
    assert finish(machine, 1) == ([], "0.1")
    assert machine.due(1, standby=False) is None
    assert machine.ask("0.2")
    assert names(machine.due(2, standby=False)) == (BEFORE, ["a"])
    assert finish(machine, 3, a=FAILED) == ([("a", OnFail.EXCLUDE, "health check a failed: why")], "0.2")
    assert not machine.ask("0.3")


@pytest.mark.parametrize("when", [START, STANDBY])
def test_a_cycle_waits_for_the_round_that_runs(when: When) -> None:
    machine = health(check("other", when, timeout=30), check("a", BEFORE, timeout=20))
    assert machine.due(0, standby=True)
    assert machine.ask("0.1")
    assert machine.bound == 2 * (START_TIME + KILL_TIME) + 30 + 20
    assert machine.due(0, standby=True) is None
    assert finish(machine, 30) == ([], "")
    assert names(machine.due(30, standby=True)) == (BEFORE, ["a"])
    assert machine.bound == 2 * (START_TIME + KILL_TIME + 20)
    assert finish(machine, 40) == ([], "0.1")


def test_without_checks_before_a_cycle_it_waits_only_for_those_of_the_start() -> None:
    machine = health(check("a", START))
    assert machine.ask("0.1")
    assert machine.bound == START_TIME + KILL_TIME + 10
    assert names(machine.due(0, standby=False)) == (START, ["a"])
    assert finish(machine, 1) == ([], "0.1")
    assert machine.due(1, standby=False) is None
    assert not machine.ask("0.2")


def test_of_the_cycles_that_wait_the_newest_counts_and_none_is_asked_for_twice() -> None:
    machine = health(check("a", BEFORE))
    machine.ask("0.1")
    machine.due(0, standby=False)
    for cycle in ("0.1", "0.2", "0.3", "0.3"):
        assert machine.ask(cycle)
    assert finish(machine, 1) == ([], "0.1")
    round_ = machine.due(1, standby=False)
    assert round_ and round_.cycle == "0.3"
    assert finish(machine, 2) == ([], "0.3")
    assert machine.due(2, standby=False) is None


def test_an_excluded_node_is_not_checked_again_and_answers_at_once() -> None:
    machine = health(check("a", STANDBY), check("b", BEFORE), interval=1)
    machine.due(0, standby=True)
    machine.ask("0.1")
    assert finish(machine, 1, a=FAILED) == ([("a", OnFail.EXCLUDE, "health check a failed: why")], "0.1")
    assert machine.excluded and machine.excluded.check == "a"
    assert machine.due(1000, standby=True) is None
    assert not machine.ask("0.2")
    assert machine.due(1000, standby=True) is None


def test_a_warning_and_its_end_are_reported_once() -> None:
    machine = health(check("a", STANDBY, on_fail=OnFail.WARN), interval=1)
    story: list[tuple[Result, list[tuple[str, OnFail | None, str]]]] = [
        (PASSED, []),
        (FAILED, [("a", OnFail.WARN, "health check a failed: why")]),
        (FAILED, []),
        (UNCHECKED, [("a", OnFail.WARN, "health check a was not done: why")]),
        (UNCHECKED, []),
        (PASSED, [("a", None, "health check a passes again")]),
        (PASSED, []),
        (FAILED, [("a", OnFail.WARN, "health check a failed: why")]),
    ]
    for number, (result, news) in enumerate(story):
        assert machine.due(10 * number, standby=True)
        assert finish(machine, 10 * number, a=result) == (news, ""), number
    assert machine.excluded is None


def test_a_check_that_could_not_be_done_does_not_exclude_the_node() -> None:
    machine = health(check("a", START))
    machine.due(0, standby=False)
    assert finish(machine, 1, a=UNCHECKED)[0] == [("a", OnFail.WARN, "health check a was not done: why")]
    assert machine.excluded is None and machine.ready


def test_a_reason_is_one_line_with_the_number_of_attempts() -> None:
    machine = health(check("a", START))
    round_ = machine.due(0, standby=False)
    assert round_
    news, _ = machine.results(round_.number, [CheckOutcome("a", FAILED, "exit code 1: no\nspace", 3)], 1)
    assert [finding.reason for finding in news] == ["health check a failed 3 times: exit code 1: no space"]


def test_a_check_without_a_result_has_failed_and_others_do_not_count() -> None:
    machine = health(check("a", START))
    round_ = machine.due(0, standby=False)
    assert round_
    assert machine.results(round_.number + 1, [CheckOutcome("a", PASSED)], 1) == ([], "")
    assert machine.running is round_
    news, _ = machine.results(round_.number, [CheckOutcome("b", PASSED)], 1)
    assert [finding.reason for finding in news] == ["health check a failed: there is no result of it"]
    assert machine.results(round_.number, [CheckOutcome("a", PASSED)], 2) == ([], "")
    assert machine.excluded


def test_a_round_takes_as_long_as_its_slowest_check_with_all_its_attempts() -> None:
    checks = [check("a", START, timeout=30), check("b", START, timeout=9, retries=3)]
    assert bound(checks[:1]) == START_TIME + 30 + KILL_TIME
    assert bound(checks) == START_TIME + 4 * (9 + KILL_TIME) + 3 * PAUSE
    assert bound([]) == 0
    assert Round(1, START, tuple(checks)).bound == bound(checks)


def test_the_built_in_checks() -> None:
    assert built_in(Health(min_free=None)) == ()
    disk, gpu = built_in(Health(min_free=1, disk=OnFail.WARN, gpu=OnFail.EXCLUDE))
    assert (disk.name, disk.on_fail, disk.when, disk.command) == (DISK, OnFail.WARN, (START, STANDBY), ())
    assert (gpu.name, gpu.on_fail, set(gpu.when), gpu.command) == (GPU, OnFail.EXCLUDE, set(When), ())
    machine = HealthMachine(Health(checks=(ALL,), min_free=0, gpu=OnFail.WARN))
    assert names(machine.due(0, standby=False)) == (START, [DISK, GPU, "all"])


def test_rounds_and_outcomes_can_be_written_down() -> None:
    for thing in (Round(1, BEFORE, (ALL,), "0.1"), CheckOutcome("a", FAILED, "why", 2)):
        assert codec.decode(codec.encode(thing), [Round, CheckOutcome]) == thing

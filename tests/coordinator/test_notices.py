"""Notices: which facts lead to one, and that the same event has the same id whichever coordinator tells it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ft_supervisor.coordinator.notices import Notices
from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.evidence import Explanation, Ground
from ft_supervisor.core.protocol.model import Cycle, Outcome, Verdict
from ft_supervisor.core.protocol.settings import NoticeKind

FIRST, SECOND = Cycle(0, 0), Cycle(0, 1)
BEGUN = facts.CycleStarted(SECOND, (0, 1), (0, 1), "the same nodes", "rank 2 (n1, local 0): ValueError: bad")


def never() -> int:
    raise AssertionError("counted for nothing")


def kinds(notices: Notices, fact: Fact, cycle: Cycle | None, spares: int | Callable[[], int] = 1) -> list[str]:
    count = spares if callable(spares) else (lambda: spares)
    return [notice.kind.value for notice in [*notices.of(fact, cycle), *notices.low(cycle, count)]]


def test_a_restart_has_its_reason_and_the_first_cycle_is_none() -> None:
    notices = Notices("1.0.0")
    assert notices.of(facts.CycleStarted(FIRST, (), (0, 1), "enough nodes are here"), FIRST) == []
    (notice,) = notices.of(BEGUN, SECOND)
    assert (notice.id, notice.kind, notice.cycle) == ("1.0.0/restart/0.1", NoticeKind.RESTART, SECOND)
    assert notice.text == "the training goes on in cycle 0.1: rank 2 (n1, local 0): ValueError: bad"


def test_a_takeover_repeats_it_with_the_same_id() -> None:
    (first,) = Notices("1.0.0").of(BEGUN, SECOND)
    (again,) = Notices("1.0.0").of(facts.TookCharge(1, 2), SECOND)
    assert again.id == first.id
    assert Notices("1.0.0").of(facts.TookCharge(1, 2), FIRST) == []
    assert Notices("1.0.0").of(facts.TookCharge(0, None), None) == []


def test_the_last_spare() -> None:
    notices = Notices("1.0.0")
    lost = facts.NodeLost(1, 0.0, 6.5)
    assert kinds(notices, facts.CycleStarted(FIRST, (), (0, 1), ""), FIRST, 2) == []
    assert kinds(notices, lost, FIRST, 1) == []
    assert kinds(notices, lost, FIRST, 0) == ["spares_low"]
    assert kinds(notices, lost, FIRST, 0) == []
    assert kinds(notices, lost, FIRST, 1) == []
    assert kinds(notices, lost, FIRST, 0) == ["spares_low"]


def test_a_spare_that_comes_late_is_missed_too() -> None:
    notices = Notices("1.0.0")
    assert kinds(notices, facts.CycleStarted(FIRST, (), (0, 1), ""), FIRST, 0) == []
    assert kinds(notices, facts.NodeRegistered(2, 1), FIRST, 1) == []
    assert kinds(notices, BEGUN, SECOND, 0) == ["restart", "spares_low"]


def test_a_spare_that_is_needed_before_it_was_counted() -> None:
    notices = Notices("1.0.0")
    assert notices.of(facts.CycleStarted(FIRST, (), (0, 1), ""), FIRST) == []
    assert len(notices.of(BEGUN, SECOND)) == 1
    assert kinds(notices, facts.NodePromoted(2, 1, 1), SECOND, 0) == ["spares_low"]


def test_a_job_that_began_without_spares_has_lost_none() -> None:
    notices = Notices("1.0.0")
    assert kinds(notices, facts.CycleStarted(FIRST, (), (0, 1), ""), FIRST, 0) == []
    assert kinds(notices, BEGUN, SECOND, 0) == ["restart"]


@pytest.mark.parametrize("fact", [facts.SteppedDown(0, "x"), facts.TickLate(3.0)])
def test_spares_are_not_counted_for_every_fact(fact: Fact) -> None:
    assert kinds(Notices("1.0.0"), fact, FIRST, never) == []


def test_spares_are_counted_once_however_many_nodes_are_lost_at_the_same_time() -> None:
    notices, counted = Notices("1.0.0"), []

    def count() -> int:
        counted.append(1)
        return 3

    for node in range(512):
        assert notices.of(facts.NodeLost(node, 0.0, 6.5), FIRST) == []
    assert notices.low(FIRST, count) == notices.low(FIRST, count) == []
    assert len(counted) == 1


def test_workers_that_hang() -> None:
    why = "rank 3 (n1, local 1) never entered all_reduce 7 of group default_pg"
    hangs = facts.HangExplained(SECOND, why, 1, Explanation(Ground.NONE), 0.0, 2.0, 4)
    (notice,) = Notices("1.0.0").of(hangs, SECOND)
    assert (notice.id, notice.kind, notice.text) == ("1.0.0/no_progress/0.1", NoticeKind.NO_PROGRESS, why)


def test_the_verdict() -> None:
    verdict = Verdict(Outcome.FAILED, "10 restarts spent")
    (notice,) = Notices("1.0.0").of(facts.VerdictClosed(verdict), SECOND)
    assert (notice.id, notice.exit_code) == ("1.0.0/verdict", 1)
    assert notice.text == "the job has ended: failed (exit code 1): 10 restarts spent"
    assert Notices("1.0.0").of(facts.VerdictProposed(verdict), SECOND) == []

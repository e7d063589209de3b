"""When warm workers are started."""

import pytest

from ft_supervisor.core.agent.warm_plan import BOUND, FIRST_PAUSE, LONGEST_PAUSE, PATIENCE, WarmPlan


def all_ready(plan: WarmPlan, now: float = 0.0) -> WarmPlan:
    for rank in plan.next(now):
        plan.started(rank, now)
        plan.ready(rank)
    return plan


def in_use(now: float = 100.0) -> WarmPlan:
    """Return a plan of three ranks whose warm workers have become those of a cycle just now."""
    plan = all_ready(WarmPlan(range(3)))
    for rank in range(3):
        plan.ordered(rank, now)
        plan.gone(rank)
    plan.began(range(3), now)
    return plan


def test_where_nothing_runs_all_are_started_at_once() -> None:
    plan = WarmPlan(range(3))
    assert plan.due == 0.0 and plan.next(5.0) == [0, 1, 2]
    plan.started(0, 5.0)
    assert plan.next(5.0) == [1, 2]
    assert all_ready(plan).next(6.0) == []


def test_beside_workers_they_wait_until_all_have_sent_a_heartbeat() -> None:
    plan = in_use(100.0)
    assert plan.next(100.0) == [] and plan.due == 100.0 + PATIENCE
    for rank in (0, 2, 2):
        plan.beat(rank)
    assert plan.next(101.0) == []
    plan.beat(1)
    assert plan.next(101.0) == [0]


def test_or_until_the_patience_is_over() -> None:
    plan = in_use(100.0)
    assert plan.next(99.9 + PATIENCE) == []
    assert plan.next(100.0 + PATIENCE) == [0]


def test_beside_workers_one_imports_at_a_time() -> None:
    plan = in_use(100.0)
    for expected in range(3):
        assert plan.next(200.0) == [expected]
        plan.started(expected, 200.0)
        assert plan.next(200.0) == [] and plan.due == 200.0 + BOUND
        plan.ready(expected)
    assert plan.next(200.0) == [] and plan.due is None


def test_one_with_an_order_has_no_second_beside_it_and_keeps_the_others_back() -> None:
    plan = WarmPlan(range(2))
    plan.started(0, 1.0)
    plan.ordered(0, 2.0)
    plan.began(range(2), 2.0)
    for rank in (0, 1):
        plan.beat(rank)
    assert plan.next(50.0) == []  # it still imports
    plan.idle()
    assert plan.next(50.0) == [1]
    plan.gone(0)
    assert plan.next(50.0) == [0, 1]


def test_none_while_workers_are_stopped() -> None:
    plan = in_use(100.0)
    plan.stopping()
    for rank in range(3):
        plan.beat(rank)
    assert plan.next(1000.0) == [] and plan.due is None
    plan.idle()
    assert plan.next(1000.0) == [0, 1, 2]


def test_after_deaths_in_a_row_the_pause_doubles() -> None:
    plan = WarmPlan(range(1))
    now, pauses = 0.0, []
    for _ in range(9):
        plan.started(0, now)
        pauses.append(plan.died(0, now))
        assert plan.next(now + pauses[-1] - 0.01) == [] and plan.due == now + pauses[-1]
        now += pauses[-1]
        assert plan.next(now) == [0]
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE] and pauses[-1] == LONGEST_PAUSE
    plan.started(0, now)
    plan.ready(0)
    assert plan.died(0, now) == FIRST_PAUSE


def test_after_a_preload_that_cannot_work_there_are_none() -> None:
    plan = WarmPlan(range(2))
    plan.started(0, 1.0)
    plan.refuse()
    plan.gone(0)
    assert plan.next(1e6) == [] and plan.due is None


@pytest.mark.parametrize("ordered_at", [None, 300.0])
def test_an_import_has_a_bound(ordered_at: float | None) -> None:
    plan = WarmPlan(range(1))
    plan.started(0, 1.0)
    if ordered_at is not None:
        plan.ordered(0, ordered_at)  # the bound does not begin anew
    assert plan.late(0.9 + BOUND) == [] and plan.due == 1.0 + BOUND
    assert plan.late(1.0 + BOUND) == [0]


def test_an_order_has_a_bound() -> None:
    plan = all_ready(WarmPlan(range(1)))
    plan.ordered(0, 50.0)
    assert plan.late(49.9 + BOUND) == [] and plan.late(50.0 + BOUND) == [0]
    plan.gone(0)
    assert plan.late(51.0 + BOUND) == []

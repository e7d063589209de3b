"""Tests the workers of one node: which events their agent gets, and when all processes below it are swept."""

from __future__ import annotations

import pytest

from ft_supervisor.core.agent.node_workers import NodeWorkers, StopOrders, WorkersState
from ft_supervisor.core.protocol.events import CannotStart, WorkersExited, WorkersGone, WorkersReturned
from ft_supervisor.core.protocol.model import Cycle, Failure
from ft_supervisor.core.transitions import InvalidState

C0, C1 = Cycle(0, 0), Cycle(0, 1)
CRASH, OTHER = Failure(3, 0, exit_code=1), Failure(3, 1, exit_code=2)
RAISES = Failure(3, 0, exception="my.Boom", lives=True)


def started() -> NodeWorkers:
    """Two workers of the first cycle, neither of which can be parked."""
    workers = NodeWorkers()
    assert workers.start(C0) == ()
    workers.started([0, 1])
    return workers


def all_exit(workers: NodeWorkers) -> NodeWorkers:
    for local_rank in (0, 1):
        workers.exited(local_rank)
    return workers


def test_a_success_is_reported_after_the_sweep() -> None:
    workers = started()
    assert workers.report() is None and not workers.wants_sweep(5.0)
    assert all_exit(workers).wants_sweep(5.0)
    assert workers.swept(0) == WorkersExited(C0, ()) and workers.state is WorkersState.NONE
    workers.start(C1)


def test_failures_are_reported_once_and_before_a_sweep() -> None:
    workers = started()
    assert workers.exited(0)
    workers.fail(CRASH)
    assert workers.exited(1)
    workers.fail(OTHER)
    assert not workers.wants_sweep(5.0)
    assert workers.report() == WorkersExited(C0, (CRASH, OTHER))
    assert workers.report() is None
    workers.fail(OTHER)
    assert workers.report() == WorkersExited(C0, (OTHER,))
    assert workers.wants_sweep(5.0)


def test_stopped_workers_are_swept_when_all_have_exited_or_at_the_deadline() -> None:
    workers = started()
    assert workers.stop(C0, 10.0, "SIGTERM", 100.0) == StopOrders("SIGTERM", (0, 1), ())
    assert workers.deadline == 110.0
    assert not workers.wants_sweep(109.9) and not workers.doomed(109.9)
    assert workers.wants_sweep(110.0) and workers.doomed(110.0) == (0, 1)
    assert all_exit(workers).wants_sweep(100.0)
    assert workers.swept(29500) == WorkersGone(C0, 29500)
    assert workers.deadline is None


def test_a_second_stop_only_brings_the_deadline_forward() -> None:
    workers = started()
    assert workers.stop(C0, 10.0, "", 100.0).signalled == ()  # they have got a signal already
    assert workers.stop(C0, 30.0, "SIGTERM", 101.0).signalled == (0, 1)
    assert workers.deadline == 110.0
    assert workers.stop(C1, 0.0, "SIGTERM", 102.0).signalled == ()
    assert workers.deadline == 102.0
    assert all_exit(workers).swept(1) == WorkersGone(C1, 1)
    workers.start(C1)
    workers.started([0])
    assert workers.stop(C1, 5.0, "SIGUSR1", 200.0) == StopOrders("SIGUSR1", (0,), ())  # it has got none


def test_failures_of_workers_that_are_being_stopped_are_not_reported() -> None:
    workers = started()
    workers.fail(CRASH)
    workers.stop(C0, 10.0, "SIGTERM", 100.0)
    assert not workers.exited(1)
    workers.fail(OTHER)
    assert workers.report() is None
    assert all_exit(workers).swept(1) == WorkersGone(C0, 1)
    workers.start(C1)
    assert workers.report() is None  # not the former cycle's


def test_workers_that_could_not_be_started_never_succeed() -> None:
    workers = started()
    workers.unable("no space left on device")
    assert workers.report() == CannotStart(C0, "no space left on device")
    assert workers.report() is None and not workers.wants_sweep(5.0)
    workers.fail(CRASH)
    assert workers.report() is None
    workers.stop(C0, 0.0, "SIGTERM", 6.0)
    assert workers.wants_sweep(6.0) and workers.doomed(6.0) == (0, 1)
    assert all_exit(workers).swept(1) == WorkersGone(C0, 1)


def test_a_node_that_runs_nothing_answers_a_stop() -> None:
    workers = NodeWorkers()
    workers.stop(C0, 10.0, "SIGTERM", 100.0)
    assert workers.wants_sweep(100.0)
    assert workers.swept(1) == WorkersGone(C0, 1)


@pytest.mark.parametrize("how", ["running", "unable", "stopping"])
def test_nothing_starts_beside_workers_that_may_be_there(how: str) -> None:
    workers = started()
    if how == "unable":
        workers.unable("why")
    elif how == "stopping":
        workers.stop(C0, 1.0, "SIGTERM", 0.0)
    with pytest.raises(InvalidState):
        workers.start(C1)


# -- workers that are parked


def restartable() -> NodeWorkers:
    """Two workers of the first cycle that have called a restartable function. They have 20 s to be parked."""
    workers = NodeWorkers(quiesce=20.0)
    workers.start(C0)
    workers.started([0, 1])
    for local_rank in (0, 1):
        workers.restartable(local_rank)
    return workers


def parks(workers: NodeWorkers, *local_ranks: int) -> NodeWorkers:
    for local_rank in local_ranks:
        workers.quiesced(local_rank)
        workers.park(local_rank)
    return workers


def test_workers_that_are_parked_have_stopped_and_go_on_in_the_next_cycle() -> None:
    workers = restartable()
    assert workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True) == StopOrders("SIGTERM", (), (0, 1))
    assert workers.deadline == 120.0
    assert not parks(workers, 0).wants_sweep(119.0)
    assert parks(workers, 1).wants_sweep(101.0) and workers.parked == (0, 1)
    assert parks(workers).deadline is None
    assert workers.swept(9) == WorkersGone(C0, 9, (0, 1))
    assert workers.start(C1, fresh=False) == (0, 1)
    assert parks(workers).parked == ()
    assert not workers.wants_sweep(200.0)


def test_no_worker_is_gone_while_one_still_leaves_its_function() -> None:
    workers = restartable()
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    parks(workers, 0)
    workers.quiesced(1)
    assert not workers.wants_sweep(119.9) and not workers.doomed(119.9)
    with pytest.raises(InvalidState, match="each worker has exited, or is parked"):
        workers.swept(9)
    assert workers.doomed(120.0) == (1,) and workers.wants_sweep(120.0)
    assert not workers.exited(1)
    assert workers.swept(9) == WorkersGone(C0, 9, (0,))


def test_a_stop_that_crosses_the_report_that_all_are_gone_changes_nothing() -> None:
    workers = restartable()
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    parks(workers, 0, 1).swept(9)
    assert workers.stop(C0, 0.0, "SIGTERM", 101.0) == StopOrders("SIGTERM", (), ())
    assert workers.start(C1, fresh=False) == (0, 1)
    workers.stop(C1, 0.0, "SIGTERM", 102.0)
    assert workers.doomed(102.0) == (0, 1)


def test_a_worker_that_cannot_be_parked_gets_the_signal_and_its_own_grace() -> None:
    workers = restartable()
    workers.started([2])
    assert workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True) == StopOrders("SIGTERM", (2,), (0, 1))
    assert workers.deadline == 105.0 and workers.doomed(105.0) == (2,)
    workers.restartable(2)  # too late: it has got the signal
    parks(workers, 2)
    assert workers.doomed(101.0) == (2,)


def test_a_worker_beside_which_something_is_left_is_killed_though_it_reports_that_it_is_parked() -> None:
    workers = restartable()
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    workers.quiesced(0, "a child lives: 4711")
    workers.park(0)
    assert workers.doomed(100.1) == (0,) and workers.parked == ()
    workers.park(1)  # without a look
    assert workers.doomed(100.1) == (0, 1)


def test_a_stop_without_parking_kills_at_once_workers_that_were_to_park() -> None:
    workers = restartable()
    workers.started([2])
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    parks(workers, 0)
    assert workers.stop(C0, 30.0, "SIGTERM", 101.0) == StopOrders("SIGTERM", (), ())
    assert workers.doomed(101.0) == (0, 1) and not workers.wants_sweep(101.0)  # the third keeps its grace
    assert workers.doomed(105.0) == (0, 1, 2)


def test_a_closing_node_gives_workers_that_run_their_grace_and_others_none() -> None:
    workers = restartable()
    workers.fail(RAISES)
    workers.quiesced(0)
    assert workers.stop(C0, 30.0, "SIGTERM", 101.0) == StopOrders("SIGTERM", (1,), ())
    assert workers.doomed(101.0) == (0,) and workers.doomed(131.0) == (0, 1)


def test_a_failure_of_a_worker_that_lives_is_reported_and_its_death_is_no_second_one() -> None:
    workers = restartable()
    workers.fail(RAISES)
    assert workers.report() == WorkersExited(C0, (RAISES,))
    parks(workers, 0)
    assert not workers.wants_sweep(100.0) and workers.parked == (0,)
    assert not workers.exited(0) and workers.report() is None


def test_a_worker_that_dies_while_it_is_parked_is_dropped() -> None:
    workers = restartable()
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    parks(workers, 0, 1).swept(9)
    assert not workers.exited(0)
    assert workers.start(C1, fresh=False) == (1,)
    workers.started([0])
    assert workers.report() is None and workers.exited(0)


def test_a_parked_worker_that_cannot_be_used_again_is_killed_and_takes_no_part() -> None:
    workers = restartable()
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    assert not workers.spoil(1)  # it ends by itself, within the time that all have
    parks(workers, 0, 1).swept(9)
    assert workers.spoil(1) and workers.doomed(103.0) == (1,) and workers.has(1)
    assert workers.start(C1, fresh=False) == (0,) and not workers.has(1)
    workers.started([1])
    assert not workers.spoil(0) and workers.exited(0)


def test_a_fresh_start_takes_no_parked_worker_up() -> None:
    workers = restartable()
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    parks(workers, 0, 1).swept(9)
    assert workers.start(C1, fresh=True) == ()
    workers.started([0, 1])
    assert workers.parked == () and workers.exited(0)


def test_parked_workers_are_forgotten_between_two_cycles_and_doomed_while_others_stop() -> None:
    workers = restartable()
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    parks(workers, 0)
    workers.drop_parked()
    assert workers.doomed(101.0) == (0,)
    parks(workers, 1)
    assert workers.doomed(101.0) == (0, 1) and workers.parked == ()
    workers = restartable()
    workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True)
    parks(workers, 0, 1).swept(9)
    workers.drop_parked()
    assert workers.parked == workers.doomed(101.0) == () and workers.start(C1, fresh=False) == ()


def test_workers_that_run_when_the_parked_are_dropped_end_with_their_cycle() -> None:
    workers = NodeWorkers(quiesce=20.0)
    workers.start(C0)
    workers.started([0, 1])
    workers.restartable(0)
    workers.drop_parked()
    workers.restartable(1)
    assert workers.doomed(100.0) == ()
    assert workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True) == StopOrders("SIGTERM", (0, 1), ())
    parks(workers, 0)
    assert workers.doomed(101.0) == (0,)


def test_a_spare_waits_in_its_function_before_it_has_run_anything() -> None:
    workers = NodeWorkers(quiesce=20.0)
    workers.wait(0)
    assert workers.parked == (0,) and workers.deadline is None
    assert workers.start(C1, fresh=False) == (0,)


def test_returned_workers_are_reported_when_all_have_returned_and_wait_for_their_release() -> None:
    workers = restartable()
    workers.started([2])  # it calls no restartable function
    workers.returned(0)
    workers.returned(1)
    assert workers.report() is None and workers.release(1) == (0, 1)
    workers.returned(0)
    workers.returned(1)
    assert workers.report() is None
    workers.exited(2)  # with 0
    assert workers.report() == WorkersReturned(C0, 2) and workers.report() is None
    assert workers.release(1) == () and workers.release(2) == (0, 1)
    assert all_exit(workers).wants_sweep(5.0)


def test_a_worker_whose_function_has_returned_is_parked_as_the_others_are() -> None:
    workers = restartable()
    workers.returned(0)
    assert workers.stop(C0, 5.0, "SIGTERM", 100.0, park=True).aborted == (0, 1)
    assert workers.release(1) == ()
    assert parks(workers, 0, 1).swept(9) == WorkersGone(C0, 9, (0, 1))


def test_a_worker_whose_failure_a_rule_ignores_is_ended_and_the_others_go_on() -> None:
    workers = restartable()
    workers.fail(RAISES)
    workers.report()
    workers.end([0])
    assert workers.doomed(100.0) == (0,) and not workers.wants_sweep(100.0)
    assert not workers.exited(0) and workers.report() is None
    workers.exited(1)
    assert workers.wants_sweep(100.0)

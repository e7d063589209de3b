"""Tests the workers of one node: which events their agent gets, and when all processes below it are swept."""

from __future__ import annotations

import pytest

from ft_supervisor.core.agent.node_workers import NodeWorkers, WorkersState
from ft_supervisor.core.protocol.events import CannotStart, WorkersExited, WorkersGone
from ft_supervisor.core.protocol.model import Cycle, Failure
from ft_supervisor.core.transitions import InvalidState

C0, C1 = Cycle(0, 0), Cycle(0, 1)
CRASH, OTHER = Failure(3, 0, exit_code=1), Failure(3, 1, exit_code=2)


def started() -> NodeWorkers:
    workers = NodeWorkers()
    workers.start(C0)
    return workers


def test_a_success_is_reported_after_the_sweep() -> None:
    workers = started()
    assert workers.report() is None and not workers.wants_sweep(5.0, live=True)
    assert workers.wants_sweep(5.0, live=False)
    assert workers.swept(0) == WorkersExited(C0, ()) and workers.state is WorkersState.NONE
    workers.start(C1)


def test_failures_are_reported_once_and_before_a_sweep() -> None:
    workers = started()
    workers.fail(CRASH)
    workers.fail(OTHER)
    assert not workers.wants_sweep(5.0, live=False)
    assert workers.report() == WorkersExited(C0, (CRASH, OTHER))
    assert workers.report() is None
    workers.fail(OTHER)
    assert workers.report() == WorkersExited(C0, (OTHER,))
    assert workers.wants_sweep(5.0, live=False)


def test_stopped_workers_are_swept_when_all_have_exited_or_at_the_deadline() -> None:
    workers = started()
    assert workers.stop(C0, 10.0, "SIGTERM", 100.0) == "SIGTERM"
    assert workers.deadline == 110.0
    assert not workers.wants_sweep(109.9, live=True)
    assert workers.wants_sweep(100.0, live=False) and workers.wants_sweep(110.0, live=True)
    assert workers.swept(29500) == WorkersGone(C0, 29500)
    assert workers.deadline is None


def test_a_second_stop_only_brings_the_deadline_forward() -> None:
    workers = started()
    assert workers.stop(C0, 10.0, "", 100.0) == ""  # they have got a signal already
    assert workers.stop(C0, 30.0, "SIGTERM", 101.0) == "SIGTERM"
    assert workers.deadline == 110.0
    assert workers.stop(C1, 0.0, "SIGTERM", 102.0) == ""
    assert workers.deadline == 102.0
    assert workers.swept(1) == WorkersGone(C1, 1)
    workers.start(C1)
    assert workers.stop(C1, 5.0, "SIGUSR1", 200.0) == "SIGUSR1"  # these have got none


def test_failures_of_workers_that_are_being_stopped_are_not_reported() -> None:
    workers = started()
    workers.fail(CRASH)
    workers.stop(C0, 10.0, "SIGTERM", 100.0)
    workers.fail(OTHER)
    assert workers.report() is None
    assert workers.swept(1) == WorkersGone(C0, 1)
    workers.start(C1)
    assert workers.report() is None  # not the former cycle's


def test_workers_that_could_not_be_started_never_succeed() -> None:
    workers = started()
    workers.unable("no space left on device")
    assert workers.report() == CannotStart(C0, "no space left on device")
    assert workers.report() is None and not workers.wants_sweep(5.0, live=False)
    workers.fail(CRASH)
    assert workers.report() is None
    workers.stop(C0, 0.0, "SIGTERM", 6.0)
    assert workers.wants_sweep(6.0, live=True)
    assert workers.swept(1) == WorkersGone(C0, 1)


def test_a_node_that_runs_nothing_answers_a_stop() -> None:
    workers = NodeWorkers()
    workers.stop(C0, 10.0, "SIGTERM", 100.0)
    assert workers.wants_sweep(100.0, live=False)
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

"""What the cluster's policy makes of a job that shrinks or grows, and of drains, signals and Slurm's answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.machines import BEAT, C0, C1, TIMEOUTS, mailed, stop, stopped, succeeded
from tests.core.policies import all_stop, failed, group, proposed, talk

from ft_supervisor.core.coordinator.interruptions import ASK_BOUND
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.messages import Propose, Run, Standby, Stop
from ft_supervisor.core.protocol.model import Again, Memory, Outcome, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision
from ft_supervisor.core.protocol.settings import Interruption, OnExhausted, Placement, Pool

# -- sizes


ELASTIC = Placement(least=2, on_exhausted=OnExhausted.SHRINK)


def test_an_elastic_job_shrinks_and_grows_back_at_the_next_failure() -> None:
    coordinator = talk(nodes=3, placement=ELASTIC)
    coordinator.silent = {1}
    coordinator.wait(TIMEOUTS.node_lost)
    runs = all_stop(coordinator)
    assert set(runs) == {0, 2} and group(coordinator) == (0, 2)
    assert {run.group_world_size for run in runs.values()} == {2}
    coordinator.silent = set()
    coordinator.register(1, connection=2, memory=Memory(0, newest=C0, group="0-2"))
    assert mailed(coordinator.wait(3 * TIMEOUTS.node_lost), Stop) == {}
    coordinator.hear(failed(0, C1, exit_code=1))
    all_stop(coordinator, C1)
    assert group(coordinator) == (0, 2, 1)


def test_growing_at_once() -> None:
    coordinator = talk(nodes=3, placement=replace(ELASTIC, grow_now=True))
    coordinator.silent = {1}
    coordinator.wait(TIMEOUTS.node_lost)
    all_stop(coordinator)
    coordinator.silent = set()
    coordinator.register(1, connection=2, memory=Memory(0, newest=C0, group="0-2"))
    assert mailed(coordinator.wait(TIMEOUTS.node_lost - BEAT), Stop) == {}  # it might go again
    assert set(mailed(coordinator.wait(3 * BEAT), Stop)) == {0, 2}
    assert set(all_stop(coordinator, C1)) == {0, 1, 2}
    assert coordinator.machine.state.cycles.ledger.used == 0


def test_below_the_least_the_job_ends() -> None:
    coordinator = talk(nodes=3, placement=ELASTIC)
    coordinator.silent = {1, 2}
    coordinator.hear(messages.Goodbye(0, 1, 1, None))
    coordinator.hear(messages.Goodbye(0, 2, 1, None))
    coordinator.hear(stopped(0))
    verdict = proposed(coordinator.wait(3 * TIMEOUTS.node_lost))
    assert verdict is None or verdict.exit_code == 75  # one of three may be no majority, and decides nothing


@pytest.mark.parametrize(
    ("exhausted", "waits", "again"),
    [
        (OnExhausted.FAIL, TIMEOUTS.node_lost, Again.OPEN),
        (OnExhausted.REQUEUE, TIMEOUTS.node_lost, Again.REQUEUE),
        (OnExhausted.WAIT, TIMEOUTS.join, Again.OPEN),
    ],
)
def test_without_spares(exhausted: OnExhausted, waits: float, again: Again) -> None:
    coordinator = talk(nodes=3, placement=Placement(on_exhausted=exhausted))
    coordinator.silent = {1}
    coordinator.wait(TIMEOUTS.node_lost)
    all_stop(coordinator)
    assert proposed(coordinator.wait(waits - 2 * BEAT)) is None
    verdict = proposed(coordinator.wait(4 * BEAT))
    assert verdict is not None
    assert (verdict.exit_code, verdict.again) == (75, again)


def test_a_job_that_waits_for_nodes_goes_on_when_one_comes() -> None:
    coordinator = talk(nodes=3, placement=Placement(on_exhausted=OnExhausted.WAIT))
    coordinator.silent = {1}
    coordinator.wait(TIMEOUTS.node_lost)
    all_stop(coordinator)
    coordinator.wait(TIMEOUTS.join / 2)
    coordinator.silent = set()
    coordinator.register(1, connection=2, memory=Memory(0, newest=C0, group="0-2"))
    assert set(mailed(coordinator.wait(2 * BEAT), Run)) == {0, 1, 2}


def test_segments_and_pools() -> None:
    """The group has two segments of two nodes. A whole segment moves when its domain has no spare for it."""
    placement = Placement(segment=2, pools=(Pool("any"),))
    coordinator = talk(nodes=8, active=4, domains="aabbbccc", placement=placement)
    assert group(coordinator) == (0, 1, 2, 3)
    coordinator.hear(failed(0, exit_code=1))
    coordinator.hear(messages.Goodbye(0, 0, 1, None))
    all_stop(coordinator)
    assert group(coordinator) == (5, 6, 2, 3)


# -- Slurm


def test_a_draining_node_is_replaced_at_the_next_cycle() -> None:
    coordinator = talk()
    assert coordinator.slurm(SlurmDecision.NOTHING, draining=(1,)) == []
    coordinator.hear(failed(0, exit_code=1))
    all_stop(coordinator)
    assert group(coordinator) == (0, 3, 2)


def test_a_draining_node_is_replaced_at_once_with_drain_now_and_a_spare() -> None:
    coordinator = talk(interruption=Interruption(drain_now=True))
    assert set(mailed(coordinator.slurm(SlurmDecision.NOTHING, draining=(1,)), Stop)) == {0, 1, 2}
    all_stop(coordinator)
    assert group(coordinator) == (0, 3, 2) and coordinator.machine.state.cycles.ledger.used == 0
    assert coordinator.slurm(SlurmDecision.NOTHING, draining=(1, 0)) == []  # no node is left to replace n0


def test_a_draining_node_is_better_than_none() -> None:
    coordinator = talk(nodes=3)
    coordinator.slurm(SlurmDecision.NOTHING, draining=(1,))
    coordinator.hear(failed(0, exit_code=1))
    assert set(all_stop(coordinator)) == {0, 1, 2}


def test_the_time_limit_ends_the_job_ahead_of_slurm() -> None:
    coordinator = talk(interruption=Interruption(before_end=100.0))
    coordinator.slurm(SlurmDecision.NOTHING, end_in=130.0, limit=3600.0)
    assert proposed(coordinator.wait(20.0)) is None
    coordinator.slurm(SlurmDecision.NOTHING, end_in=200.0, limit=3600.0)  # a user has changed the limit
    assert proposed(coordinator.wait(90.0)) is None
    assert proposed(coordinator.wait(11.0)) == Verdict(Outcome.INTERRUPTED, "Slurm's time limit in 100 s")


def test_a_short_job_does_not_end_at_once() -> None:
    coordinator = talk(interruption=Interruption(before_end=180.0))
    coordinator.slurm(SlurmDecision.NOTHING, end_in=100.0, limit=120.0)
    assert proposed(coordinator.wait(69.0)) is None
    assert set(mailed(coordinator.wait(2.0), Propose)) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("decision", "requeue", "outcome", "again"),
    [
        (SlurmDecision.TIME_LIMIT, False, Outcome.INTERRUPTED, Again.OPEN),
        (SlurmDecision.TIME_LIMIT, True, Outcome.INTERRUPTED, Again.REQUEUE),
        (SlurmDecision.PREEMPTED, True, Outcome.INTERRUPTED, Again.REQUEUE),
        (SlurmDecision.REQUEUED, True, Outcome.INTERRUPTED, Again.OPEN),  # it is already
        (SlurmDecision.CANCELLED, True, Outcome.CANCELLED, Again.OPEN),
        (SlurmDecision.NOTHING, True, Outcome.CANCELLED, Again.OPEN),
    ],
)
def test_what_a_signal_means(decision: SlurmDecision, requeue: bool, outcome: Outcome, again: Again) -> None:
    coordinator = talk(interruption=Interruption(requeue=requeue))
    coordinator.hear(messages.ToldToEnd(0, 1, 1, "SIGTERM"))
    coordinator.hear(messages.ToldToEnd(0, 1, 1, "SIGTERM"))  # twice, harmless
    verdict = proposed(coordinator.slurm(decision))
    assert verdict is not None
    assert (verdict.outcome, verdict.again) == (outcome, again)


def test_a_signal_that_slurm_does_not_explain_in_time_cancels_the_job() -> None:
    coordinator = talk()
    coordinator.hear(messages.ToldToEnd(0, 1, 1, "SIGTERM"))
    coordinator.slurm(SlurmDecision.NOTHING, problem="scontrol: no answer")
    assert proposed(coordinator.wait(4.0)) is None
    assert proposed(coordinator.wait(2.0)) == Verdict(Outcome.CANCELLED, "n1 was told to end: SIGTERM")


def test_no_cycle_begins_while_a_signal_is_not_explained() -> None:
    coordinator = talk()
    coordinator.hear(failed(1, signal="SIGTERM"))
    coordinator.hear(messages.ToldToEnd(0, 1, 1, "SIGTERM"))
    assert all_stop(coordinator) == {}
    assert mailed(coordinator.wait(2.0), Run) == {}


def test_a_job_that_slurm_interrupts_never_succeeds() -> None:
    coordinator = talk()
    coordinator.slurm(SlurmDecision.PREEMPTED)
    for infra_rank in range(3):
        coordinator.hear(succeeded(infra_rank))
    assert coordinator.machine.state.commit.proposal == Verdict(Outcome.INTERRUPTED, "preempted by Slurm")


@pytest.mark.parametrize("explained", [True, False])
def test_never_success_nor_failure_once_a_signal_has_come(explained: bool) -> None:
    """The workers end because of the signal, before Slurm has answered what it means."""
    coordinator = talk()
    coordinator.hear(messages.ToldToEnd(0, 1, 1, "SIGTERM"))
    for infra_rank in range(3):
        coordinator.hear(succeeded(infra_rank))
    assert coordinator.machine.state.commit.proposal is None
    answers = coordinator.slurm(SlurmDecision.CANCELLED) if explained else coordinator.wait(ASK_BOUND + 1)
    assert proposed(answers) == Verdict(Outcome.CANCELLED, "n1 was told to end: SIGTERM")


def test_slurm_is_asked_again_when_its_signal_ended_the_question() -> None:
    coordinator = talk()
    coordinator.hear(messages.ToldToEnd(0, 1, 1, "SIGTERM"))
    asked = coordinator.questions
    coordinator.wait(1.0)
    assert coordinator.questions == asked, "an answer is awaited"
    coordinator.slurm(SlurmDecision.NOTHING, problem="scontrol: exit code 0")
    coordinator.wait(1.0)
    assert coordinator.questions == asked + 1


def test_slurm_away_is_logged_once() -> None:
    coordinator = talk()
    for _ in range(5):
        coordinator.slurm(SlurmDecision.NOTHING, problem="scontrol: no answer")
    coordinator.slurm(SlurmDecision.NOTHING)
    assert coordinator.logged.count("slurm") == 2


def test_standbys_get_the_ledger() -> None:
    coordinator = talk()
    coordinator.hear(failed(1, exit_code=1))
    answers: list[object] = []
    for infra_rank in range(3):
        answers += coordinator.hear(stopped(infra_rank))
    told = mailed(answers, Standby)[3]
    assert isinstance(told, Standby) and told.ledger.used == 1
    assert stop(0) not in answers

"""A coordinator that begins cycles and restarts them, scenario by scenario: messages and time in, deeds out.

They are the joining, the restart in place, what a Register makes up for, and messages that are old.
"""

import pytest
from tests.core.machines import (
    BEAT,
    C0,
    C1,
    FAILURE,
    RAN,
    SUCCESS,
    TIMEOUTS,
    Talk,
    failed,
    goodbye,
    interrupted,
    node,
    stop,
    stopped,
    stopping,
    succeeded,
)

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import ClaimClose, Mail
from ft_supervisor.core.protocol.model import Cycle, Failure, JobPhase, Memory, Outcome, Problem, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision

# -- joining


def test_when_all_are_here_the_lowest_run_at_once() -> None:
    talk = Talk()
    assert talk.register(2) == [talk.standby(2, None)]
    assert talk.register(3) == [talk.standby(3, None)]
    assert talk.register(0) == [talk.standby(0, None)]
    assert talk.register(1) == [
        talk.standby(1, None),
        talk.run(0, 0),
        talk.run(1, 1),
        talk.run(2, 2),
        talk.standby(3),
    ]


def test_enough_nodes_wait_for_lower_ranks() -> None:
    talk = Talk()
    talk.silent = {0}
    for infra_rank in (1, 2, 3):
        assert talk.register(infra_rank) == [talk.standby(infra_rank, None)]
    assert talk.wait(TIMEOUTS.node_lost - 1) == []
    talk.silent = set()
    assert talk.register(0) == [talk.standby(0, None), talk.run(0, 0), talk.run(1, 1), talk.run(2, 2), talk.standby(3)]


def test_enough_nodes_do_not_wait_forever() -> None:
    talk = Talk()
    for infra_rank in (1, 2, 3):
        talk.register(infra_rank)
    assert talk.wait(TIMEOUTS.node_lost + 1) == [
        talk.run(1, 0, port=101, master=1),
        talk.run(2, 1, port=101, master=1),
        talk.run(3, 2, port=101, master=1),
    ]
    assert talk.register(0) == [talk.standby(0, C0)]


def test_too_few_nodes_until_the_join_timeout() -> None:
    talk = Talk()
    talk.register(0)
    talk.register(3)
    assert talk.wait(TIMEOUTS.join - 1) == []
    assert talk.wait(1) == talk.propose(interrupted("too few nodes: 2 of 3 came within 60 s; n[1-2] never came"), 0, 3)


def test_an_unhealthy_node_is_not_among_those_that_came() -> None:
    talk = Talk()
    for infra_rank in (0, 1):
        talk.register(infra_rank)
    talk.register(3, memory=Memory(0, unhealthy=Problem("gpu", "7 of 8 GPUs")))
    talk.wait(TIMEOUTS.join - 1)
    reason = "too few nodes: 2 of 3 came within 60 s, and 1 more that may not train; n2 never came"
    assert talk.wait(1) == talk.propose(interrupted(reason), 0, 1, 3)


def test_a_silent_node_is_not_among_the_first() -> None:
    talk = Talk()
    talk.silent = {1}
    for infra_rank in (0, 1, 2):
        talk.register(infra_rank)
    talk.wait(TIMEOUTS.coordinator)
    assert talk.register(3) == [talk.standby(3, None)]  # n1 is no more than silent: it may yet be chosen
    assert talk.wait(TIMEOUTS.node_lost + 1) == [talk.run(0, 0), talk.run(2, 1), talk.run(3, 2)]


# -- restart in place


def test_a_failure_stops_all_and_the_same_nodes_begin_anew() -> None:
    talk = Talk()
    talk.begin()
    assert talk.hear(failed(1)) == [stop(0), stop(1), stop(2)]
    for infra_rank in (0, 2):
        assert talk.hear(stopping(infra_rank)) == []
        assert talk.hear(stopped(infra_rank)) == []
    assert talk.hear(stopped(1)) == [
        talk.run(0, 0, C1, port=200),  # the newest word of a free port there
        talk.run(1, 1, C1, port=200),
        talk.run(2, 2, C1, port=200),
        talk.standby(3, C1),
    ]
    assert talk.logged.count("restart") == 1


def test_peers_that_fail_too_are_no_second_failure() -> None:
    talk = Talk(max_restarts=1)
    talk.begin()
    talk.hear(failed(1))
    assert talk.hear(failed(0)) == []
    assert talk.hear(failed(2)) == []
    assert talk.machine.state.phase is JobPhase.STOPPING


def test_the_spent_budget_is_the_verdict() -> None:
    talk = Talk(max_restarts=1)
    talk.begin()
    talk.hear(failed(1))
    for infra_rank in range(3):
        talk.hear(stopped(infra_rank))
    verdict = Verdict(Outcome.FAILED, "1 restart spent: a worker (n2, local 0) exited with 3")
    assert talk.hear(failed(2, C1)) == [stop(rank, C1, grace=TIMEOUTS.stop_grace) for rank in range(3)]
    for infra_rank in range(3):  # all nodes have had the time to report
        assert talk.hear(stopping(infra_rank, C1)) == []
    assert talk.wait(TIMEOUTS.probe + BEAT) == talk.propose(verdict)


def by_sigterm(infra_rank: int) -> messages.WorkersFailed:
    failures = (Failure(infra_rank, 0, signal="SIGTERM"),)
    return messages.WorkersFailed(0, infra_rank, 1, C0, failures)


def test_with_the_budget_spent_a_cancelled_job_is_not_called_failed() -> None:
    talk = Talk(max_restarts=0)
    talk.begin()
    assert talk.hear(by_sigterm(1)) == [stop(rank, grace=TIMEOUTS.stop_grace) for rank in range(3)]
    reason = "n2 was told to end: SIGTERM"
    assert talk.hear(messages.ToldToEnd(0, 2, 1, "SIGTERM")) == []
    assert talk.slurm(SlurmDecision.CANCELLED) == talk.propose(Verdict(Outcome.CANCELLED, reason))


def test_with_the_budget_spent_the_job_fails_once_all_nodes_have_had_time_to_report() -> None:
    talk = Talk(max_restarts=0)
    talk.begin()
    talk.hear(by_sigterm(1))
    talk.hear(stopping(0))
    talk.hear(stopping(1))
    assert talk.wait(TIMEOUTS.probe + BEAT) == []
    reason = "no restarts allowed: a worker (n1, local 0) was killed by SIGTERM"
    assert talk.hear(stopping(2)) == []
    assert talk.wait(BEAT) == talk.propose(Verdict(Outcome.FAILED, reason))


def test_a_node_that_succeeded_is_not_waited_for_and_runs_again() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(succeeded(0))
    assert talk.hear(failed(1)) == [stop(1), stop(2)]
    talk.hear(stopped(1))
    assert talk.hear(stopped(2))[:3] == [talk.run(0, 0, C1), talk.run(1, 1, C1), talk.run(2, 2, C1)]


def test_stopped_without_a_stop_means_that_the_failures_message_was_lost() -> None:
    talk = Talk()
    talk.begin()
    assert talk.hear(stopped(1)) == [stop(0), stop(1), stop(2)]
    talk.hear(stopped(0))
    assert talk.hear(stopped(2))[:1] == [talk.run(0, 0, C1, port=200)]


# -- a Register tells what was lost on the way


def test_a_register_makes_up_for_a_lost_run() -> None:
    talk = Talk()
    talk.begin()
    assert talk.register(1, connection=2) == [talk.run(1, 1, connection=2)]
    assert talk.register(1, incarnation=2, memory=Memory(0)) == [talk.run(1, 1, incarnation=2)]


def test_a_register_makes_up_for_a_lost_success() -> None:
    talk = Talk(nodes=2, active=2)
    talk.begin()
    talk.hear(succeeded(0))
    assert talk.register(1, incarnation=2, memory=Memory(0, newest=C0, group="0-1", succeeded=C0)) == [
        talk.go_on(1, incarnation=2),
        *talk.propose(SUCCESS, 0),
        Mail(1, 2, 1, messages.Propose(0, SUCCESS)),
    ]


def test_a_register_makes_up_for_a_lost_failure() -> None:
    talk = Talk()
    talk.begin()
    memory = Memory(0, newest=C0, group="0-2", failures=(FAILURE,))
    assert talk.register(1, connection=2, running=C0, memory=memory) == [
        stop(0),
        stop(1, connection=2),
        stop(2),
        stop(1, connection=2),
    ]


def test_a_register_makes_up_for_a_lost_stop() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(failed(0))
    assert talk.register(1, connection=2, running=C0, memory=RAN) == [stop(1, connection=2)]


def test_a_register_makes_up_for_a_lost_stopped() -> None:
    talk = Talk(nodes=2, active=2)
    talk.begin()
    talk.hear(failed(0))
    talk.hear(stopped(0))
    before = talk.standby(1, C0, connection=2)
    assert talk.register(1, connection=2, memory=Memory(0, newest=C0, group="0-1")) == [
        before,
        talk.run(0, 0, C1, port=200),
        talk.run(1, 1, C1, port=200, connection=2),
    ]


def test_a_node_that_runs_goes_on_with_a_new_connection() -> None:
    talk = Talk()
    talk.begin()
    assert talk.register(1, connection=2, running=C0, memory=RAN) == [talk.go_on(1, connection=2)]
    assert talk.machine.state.phase is JobPhase.RUNNING


def test_an_agent_that_was_replaced_takes_its_workers_with_it() -> None:
    talk = Talk()
    talk.begin()
    assert talk.register(1, incarnation=2, memory=RAN) == [
        stop(0),
        stop(2),
        talk.standby(1, C0, incarnation=2, used=1),
    ]
    talk.hear(stopped(0))
    done = talk.hear(stopped(2))
    assert talk.run(1, 1, C1, port=200, incarnation=2) in done


def test_a_verdict_in_a_register_is_the_jobs() -> None:
    talk = Talk()
    talk.begin()
    verdict = Verdict(Outcome.FAILED, "found")
    assert talk.register(3, incarnation=2, memory=Memory(0, verdict=verdict)) == [
        *talk.decided(verdict),
        Mail(3, 2, 1, messages.Propose(0, verdict)),
    ]
    assert talk.written(verdict) == [ClaimClose(verdict)]


# -- what is old changes nothing (7)


@pytest.mark.parametrize(
    "old",
    [
        failed(1, C0, incarnation=2),
        succeeded(1, C0, incarnation=2),
        stopped(1, C0, incarnation=2),
        failed(1, C1, incarnation=1),
        succeeded(1, C1, incarnation=1),
        stopped(1, C1, incarnation=1),
        goodbye(1, incarnation=1),
        messages.ToldToEnd(0, 1, 1, "SIGTERM"),
        messages.ToldToEnd(1, 1, 2, "SIGTERM"),
        messages.WorkersFailed(1, 1, 2, C1, (FAILURE,)),
        messages.Register(node(1), 1, 7, 9, 9, None, Memory(0), serial=9),
        messages.Register(node(1), 2, 1, 9, 9, None, Memory(0), serial=1),
        messages.Register(node(1), 2, 7, 9, 9, None, Memory(5), serial=1),
        messages.Register(node(1), 2, 0, 9, 9, None, Memory(0), serial=0),
        messages.RosterKept(0, 1, 1, (0, 9)),
        messages.VerdictKept(0, 1, 2),
        failed(3, C1),  # a standby runs nothing
        succeeded(3, C1),
        succeeded(1, Cycle(0, 2), incarnation=2),
        messages.Goodbye(0, 17, 1, SUCCESS),
        messages.Goodbye(0, -1, 1, SUCCESS),
    ],
    ids=str,
)
def test_old_or_unexpected_messages_change_nothing(old: messages.ToCoordinator) -> None:
    talk = Talk()
    talk.begin()
    talk.register(1, incarnation=2, memory=RAN)
    talk.hear(stopped(0))
    talk.hear(stopped(2))
    assert talk.machine.cycle == C1
    assert talk.hear(old) == []
    assert talk.machine.state.phase is JobPhase.RUNNING
    assert talk.machine.state.cycles.current.pending == {0, 1, 2}
    assert talk.machine.members[1].incarnation == 2


def test_a_late_stopped_of_the_former_cycle_does_not_release_the_next() -> None:
    talk = Talk(nodes=2, active=2)
    talk.begin()
    talk.hear(failed(0))
    talk.hear(stopped(0))
    talk.hear(stopped(1))
    assert talk.hear(failed(0, C1)) == [stop(0, C1), stop(1, C1)]
    talk.hear(stopped(0, C1))
    assert talk.hear(stopped(1, C0)) == []
    assert talk.machine.cycle == C1
    assert talk.hear(stopped(1, C1)) != []

"""Tests the coordinator, scenario by scenario: messages and time in, actions out, compared as they are."""

import pytest
from tests.core.machines import (
    BEAT,
    C0,
    C1,
    FAILURE,
    TIMEOUTS,
    Talk,
    close,
    decided,
    failed,
    goodbye,
    node,
    stop,
    stopped,
    stopping,
    succeeded,
    verdict_kept,
)

from ft_supervisor.core.coordinator.failure_decision import JOB_STOP_MARGIN
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import ClaimClose, Leave, Mail, Tell
from ft_supervisor.core.protocol.model import KILL_BOUND, Cycle, Failure, JobPhase, Memory, Outcome, Problem, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision, VerdictDecided

RAN = Memory(0, newest=C0, group="0-2")
SUCCESS = Verdict(Outcome.SUCCESS, "all workers of cycle 0.0 exited with 0")


def interrupted(reason: str) -> Verdict:
    return Verdict(Outcome.INTERRUPTED, reason)


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
    assert talk.wait(1) == talk.propose(interrupted("too few nodes: 2 of 3 came within 60 s"), 0, 3)


def test_an_unhealthy_node_is_not_among_those_that_came() -> None:
    talk = Talk()
    for infra_rank in (0, 1):
        talk.register(infra_rank)
    talk.register(3, memory=Memory(0, unhealthy=Problem("gpu", "7 of 8 GPUs")))
    talk.wait(TIMEOUTS.join - 1)
    reason = "too few nodes: 2 of 3 came within 60 s, and 1 more that may not train"
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
    verdict = Verdict(Outcome.FAILED, "1 restarts spent: n2: worker 0 of node 2: exit code 3")
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
    reason = "no restarts allowed: n1: worker 0 of node 1: killed by SIGTERM"
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


# -- lost nodes


def test_a_lost_active_node_is_replaced_and_survivors_keep_their_ranks() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    assert talk.wait(TIMEOUTS.node_lost - 0.5) == []
    assert talk.wait(0.5) == [stop(0), stop(2)]
    talk.hear(stopped(2))
    assert talk.hear(stopped(0)) == [
        talk.run(0, 0, C1, port=200),
        talk.run(3, 1, C1, port=200),
        talk.run(2, 2, C1, port=200),
    ]
    assert talk.logged[-2:] == ["cycle_started", "promoted"]


def test_the_standby_of_the_same_domain_is_promoted() -> None:
    talk = Talk(nodes=5, active=3, domains="xyzxy")
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    talk.hear(stopped(0))
    done = talk.hear(stopped(2))
    assert talk.run(4, 1, C1, port=200) in done


def test_no_cycle_starts_before_the_last_node_has_stopped_or_is_lost() -> None:
    """Invariant 10 holds where a dead node's peers fail before the coordinator detects its silence."""
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    assert talk.hear(failed(0)) == [stop(0), stop(1), stop(2)]
    talk.hear(stopping(0))
    talk.hear(stopped(0))
    talk.hear(stopping(2))
    talk.hear(stopped(2))
    assert talk.wait(TIMEOUTS.node_lost - 0.5) == []
    assert "suspect" in talk.logged
    assert talk.wait(0.5) == [
        talk.run(0, 0, C1, port=200),
        talk.run(3, 1, C1, port=200),
        talk.run(2, 2, C1, port=200),
    ]


def test_a_node_that_answers_the_probe_is_no_suspect() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(failed(0))
    for infra_rank in range(3):
        talk.hear(stopping(infra_rank))
    talk.wait(2 * TIMEOUTS.probe)
    assert "suspect" not in talk.logged


def test_any_message_of_a_node_is_a_sign_of_life() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost - BEAT)
    talk.hear(stopping(1))
    assert talk.wait(TIMEOUTS.node_lost - BEAT) == []
    assert talk.wait(BEAT) == [stop(0), stop(2)]


def test_a_lost_standby_is_only_logged() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {3}
    assert talk.wait(TIMEOUTS.node_lost + 1) == []
    assert "node_lost" in talk.logged
    assert [roster.members for roster in talk.rosters] == ["0-2", "0-2"]  # asked of both lists, then the new one alone


def test_losing_a_node_that_has_succeeded_is_no_failure() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(succeeded(1))
    talk.silent = {1}
    assert talk.wait(TIMEOUTS.node_lost + 1) == []
    talk.hear(succeeded(0))
    assert talk.hear(succeeded(2)) == talk.propose(SUCCESS, 0, 2, 3)


def test_a_lost_node_that_comes_back_stands_by() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    talk.hear(stopped(0))
    talk.hear(stopped(2))
    talk.silent = set()
    asked = Mail(1, 1, 1, messages.Prepare(0))
    assert talk.wait(2 * BEAT) == [asked, asked]  # heartbeats alone do not bring it back
    assert not talk.machine.members[1].here
    assert talk.register(1, connection=2) == [talk.standby(1, C1, connection=2)]
    assert talk.machine.members[1].here


def test_the_first_loss_of_a_node_is_free_the_second_is_charged() -> None:
    talk = Talk(nodes=3, active=3, max_restarts=0)
    talk.begin()
    talk.silent = {2}
    assert talk.wait(TIMEOUTS.node_lost) == [stop(0), stop(1)]
    talk.hear(stopped(0))
    talk.hear(stopped(1))
    talk.silent = set()
    talk.register(2, connection=2, memory=RAN)
    talk.wait(BEAT)  # it is to be on the list of members again
    assert talk.machine.cycle == C1
    talk.silent = {2}
    verdict = Verdict(Outcome.FAILED, "no restarts allowed: n2 was not heard for 6.5 s")
    assert talk.wait(TIMEOUTS.node_lost) == [stop(rank, C1, grace=TIMEOUTS.stop_grace) for rank in (0, 1)]
    talk.hear(stopping(0, C1))
    talk.hear(stopping(1, C1))
    assert talk.wait(TIMEOUTS.probe) == talk.propose(verdict, 0, 1)


def test_a_node_that_sends_goodbye_is_replaced_at_once() -> None:
    talk = Talk()
    talk.begin()
    assert talk.hear(goodbye(1)) == [stop(0), stop(2)]
    assert talk.register(1, incarnation=2) == []
    talk.hear(stopped(0))
    done = talk.hear(stopped(2))
    assert talk.run(3, 1, C1, port=200) in done


def test_too_few_nodes_get_a_last_chance() -> None:
    talk = Talk(nodes=3, active=3)
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    talk.hear(stopped(0))
    assert talk.hear(stopped(2)) == []
    assert talk.wait(TIMEOUTS.node_lost - 3 * BEAT) == []
    talk.silent = set()
    assert talk.register(1, incarnation=2, memory=RAN) == [talk.standby(1, C0, incarnation=2)]
    assert talk.wait(BEAT) == [  # as soon as it is on the list of members again
        talk.run(0, 0, C1, port=200),
        talk.run(1, 1, C1, port=200, incarnation=2),
        talk.run(2, 2, C1, port=200),
    ]


def test_too_few_nodes_end_the_job() -> None:
    talk = Talk(nodes=3, active=3)
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    talk.hear(stopped(0))
    talk.hear(stopped(2))
    reason = "too few nodes: 2 of 3 nodes are left; n1 was not heard for 6.5 s"
    assert talk.wait(TIMEOUTS.node_lost) == talk.propose(interrupted(reason), 0, 2)
    assert "too_few_nodes" in talk.logged


def test_a_node_that_cannot_end_its_workers_ends_the_job_within_a_bound() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(failed(0))
    talk.hear(stopped(0))
    talk.hear(stopped(2))
    bound = TIMEOUTS.restart_grace + KILL_BOUND + TIMEOUTS.node_lost + JOB_STOP_MARGIN
    assert talk.wait(bound - 0.5) == []
    assert talk.wait(0.5) == talk.propose(interrupted(f"n1 did not stop its workers within {bound:g} s"))


def test_time_in_which_the_coordinator_stood_still_does_not_count_as_silence() -> None:
    talk = Talk()
    talk.begin()
    talk.wait(2)
    talk.silent = {0, 1, 2, 3}
    talk.now += TIMEOUTS.fence - BEAT
    assert talk.wait(BEAT) == []
    assert "tick_late" in talk.logged
    talk.silent = {1}
    assert talk.wait(TIMEOUTS.node_lost - 3 * BEAT) == []  # two beats less, as each node may be late by them
    assert talk.wait(BEAT) == [stop(0), stop(2)]


# -- a Register has the content of messages that got lost


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


# -- the end


def test_success_needs_every_active_node() -> None:
    talk = Talk()
    talk.begin()
    for infra_rank in (2, 2, 0, 3):
        assert talk.hear(succeeded(infra_rank)) == []
    assert talk.hear(succeeded(1)) == talk.propose(SUCCESS)


def test_closing_in_its_order() -> None:
    """A verdict is kept by a majority, written, claimed and sent, in this order."""
    talk = Talk()
    talk.begin()
    for infra_rank in range(3):
        talk.hear(succeeded(infra_rank))
    assert talk.hear(verdict_kept(3)) == []
    assert talk.hear(verdict_kept(3)) == []
    assert talk.hear(verdict_kept(2)) == []  # half of them, but not the first
    assert talk.hear(verdict_kept(1)) == decided(SUCCESS, "")
    assert talk.hear(verdict_kept(0)) == []
    assert talk.written(SUCCESS) == [ClaimClose(SUCCESS)]
    assert talk.written(SUCCESS) == []
    assert talk.held(SUCCESS) == [close(i, SUCCESS) for i in range(4)]
    assert talk.machine.verdict == SUCCESS


def test_success_of_a_former_cycle_does_not_count() -> None:
    talk = Talk(nodes=2, active=2)
    talk.begin()
    talk.hear(succeeded(0))
    talk.hear(failed(1))
    talk.hear(stopped(1))
    assert talk.machine.cycle == C1
    assert talk.hear(succeeded(1, C1)) == []
    verdict = Verdict(Outcome.SUCCESS, SUCCESS.reason.replace("0.0", "0.1"))
    assert talk.hear(succeeded(0, C1)) == talk.propose(verdict)


def test_the_value_of_the_key_is_the_verdict_even_from_outside() -> None:
    talk = Talk(nodes=2, active=2)
    talk.begin()
    talk.hear(succeeded(0))
    talk.hear(succeeded(1))
    talk.hear(verdict_kept(0))
    talk.written(SUCCESS)
    outside = Verdict(Outcome.INTERRUPTED, "from outside")
    assert talk.held(outside) == [close(0, outside), close(1, outside)]
    assert talk.held(SUCCESS) == []
    assert talk.machine.verdict == outside


def test_the_content_of_the_file_is_the_verdict_even_of_a_former_coordinator() -> None:
    talk = Talk(nodes=2, active=2)
    talk.begin()
    talk.hear(succeeded(0))
    talk.hear(succeeded(1))
    talk.hear(verdict_kept(0))
    former = Verdict(Outcome.INTERRUPTED, "of a former coordinator")
    assert talk.written(former) == [ClaimClose(former)]
    assert talk.held(former) == [close(0, former), close(1, former)]


def test_a_verdict_from_outside_ends_a_job_that_still_joins() -> None:
    talk = Talk()
    talk.register(0)
    outside = Verdict(Outcome.FAILED, "from outside")
    assert talk.held(outside) == decided(outside, "1-3")
    assert talk.register(2) == talk.propose(outside, 2)  # it is not yet written down
    assert talk.written(outside) == [ClaimClose(outside)]
    assert talk.held(outside) == [close(0, outside), close(2, outside)]
    assert talk.register(3) == [close(3, outside)]


def test_a_found_verdict_goes_before_a_proposal_that_no_node_keeps_yet() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(messages.ToldToEnd(0, 3, 1, "SIGTERM"))
    found = Verdict(Outcome.SUCCESS, "found")
    assert talk.held(found) == decided(found, "")
    for infra_rank in range(4):
        assert talk.hear(verdict_kept(infra_rank)) == []
    assert talk.machine.verdict == found


def test_a_proposal_without_a_majority_is_no_verdict() -> None:
    talk = Talk(nodes=5, active=3)
    talk.begin()
    talk.hear(messages.ToldToEnd(0, 3, 1, "SIGTERM"))
    for infra_rank in (0, 3, 0, 3):
        assert talk.hear(verdict_kept(infra_rank)) == []
    talk.silent = {1, 2, 4}
    assert talk.wait(2 * TIMEOUTS.node_lost) == []
    assert talk.machine.verdict is None
    assert talk.machine.term == 0


def test_nothing_runs_after_the_verdict() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(failed(0))
    talk.hear(messages.ToldToEnd(0, 3, 1, "SIGTERM"))
    talk.slurm(SlurmDecision.CANCELLED)
    for infra_rank in range(3):
        assert talk.hear(stopped(infra_rank)) == []
    assert talk.wait(2 * TIMEOUTS.node_lost) == []


def test_a_signal_to_a_node_cancels_the_job() -> None:
    talk = Talk()
    talk.begin()
    verdict = Verdict(Outcome.CANCELLED, "n3 was told to end: SIGTERM")
    assert talk.hear(messages.ToldToEnd(0, 3, 1, "SIGTERM")) == []
    assert talk.slurm(SlurmDecision.CANCELLED) == talk.propose(verdict)
    assert talk.hear(messages.ToldToEnd(0, 2, 1, "SIGTERM")) == []


def test_a_node_that_registers_after_the_end_gets_the_verdict() -> None:
    talk = Talk()
    talk.begin()
    talk.settle_from_outside(SUCCESS)
    assert talk.register(1, incarnation=2, memory=RAN) == [close(1, SUCCESS, incarnation=2)]


def test_the_coordinator_leaves_after_the_last_goodbye() -> None:
    talk = Talk(nodes=2, active=1)
    talk.begin()
    talk.settle_from_outside(SUCCESS)
    assert talk.hear(goodbye(1)) == []
    assert talk.hear(goodbye(0)) == [Tell(VerdictDecided(SUCCESS)), Leave(0, SUCCESS, SUCCESS.reason)]


@pytest.mark.parametrize(
    ("outcome", "bound"),
    [
        (Outcome.SUCCESS, TIMEOUTS.close_grace),
        (Outcome.FAILED, TIMEOUTS.close_grace + TIMEOUTS.stop_grace + KILL_BOUND),
    ],
)
def test_the_coordinator_does_not_wait_forever(outcome: Outcome, bound: float) -> None:
    talk = Talk()
    talk.begin()
    verdict = Verdict(outcome, "over")
    talk.settle_from_outside(verdict)
    assert talk.wait(bound - 0.5) == []
    assert talk.wait(0.5) == [Tell(VerdictDecided(verdict)), Leave(verdict.exit_code, verdict, "over")]


def test_a_coordinator_without_nodes_leaves_at_once() -> None:
    talk = Talk(nodes=2, active=1)
    verdict = Verdict(Outcome.FAILED, "over")
    talk.held(verdict)
    talk.written(verdict)
    assert talk.held(verdict) == [Tell(VerdictDecided(verdict, "0-1")), Leave(1, verdict, "over")]


def test_nodes_that_are_lost_at_the_end_are_named() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    talk.settle_from_outside(SUCCESS)
    for infra_rank in (0, 2):
        talk.hear(goodbye(infra_rank))
    assert talk.hear(goodbye(3)) == [Tell(VerdictDecided(SUCCESS, "1")), Leave(0, SUCCESS, SUCCESS.reason)]


def test_a_message_is_addressed_to_the_connection_that_registered() -> None:
    talk = Talk(nodes=1, active=1)
    talk.register(0)
    talk.register(0, incarnation=2)
    talk.register(0, incarnation=2, connection=5)
    assert talk.settle_from_outside(SUCCESS) == [Mail(0, 2, 5, messages.Close(0, SUCCESS))]

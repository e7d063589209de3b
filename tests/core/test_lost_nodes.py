"""A coordinator that loses nodes: when it takes one for lost, which one replaces it, and when too few are left."""

from tests.core.machines import (
    BEAT,
    C0,
    C1,
    RAN,
    SUCCESS,
    TIMEOUTS,
    Talk,
    failed,
    goodbye,
    interrupted,
    stop,
    stopped,
    stopping,
    succeeded,
)

from ft_supervisor.core.coordinator.failure_decision import JOB_STOP_MARGIN
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Mail
from ft_supervisor.core.protocol.model import KILL_BOUND, Outcome, Verdict


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

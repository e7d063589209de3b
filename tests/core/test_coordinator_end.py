"""A coordinator that ends its job: the verdict, the order of closing it, and who is waited for."""

import pytest
from tests.core.machines import (
    C1,
    RAN,
    SUCCESS,
    TIMEOUTS,
    Talk,
    close,
    decided,
    failed,
    goodbye,
    stopped,
    succeeded,
    verdict_kept,
)

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import ClaimClose, Leave, Mail, Tell
from ft_supervisor.core.protocol.model import KILL_BOUND, Outcome, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision, VerdictDecided


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

"""A coordinator that takes over: from candidate to in charge, and its use of the nodes' memories and verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.machines import (
    BEAT,
    C0,
    C1,
    FAILURE,
    SUCCESS,
    TIMEOUTS,
    Talk,
    close,
    decided,
    failed,
    mailed,
    stop,
    stopped,
    succeeded,
    verdict_kept,
)
from tests.core.takeover import Takeover, ran

from ft_supervisor.core.coordinator.leadership import Role
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import ClaimClose, LookForVerdict, Mail
from ft_supervisor.core.protocol.ledger import Ledger, Spent
from ft_supervisor.core.protocol.messages import Continue, Prepare, Propose, Run, Stop
from ft_supervisor.core.protocol.model import Accepted, Cycle, Memory, Outcome, Roster, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision

FAILED = Verdict(Outcome.FAILED, "over")
ONE_USED = Ledger(entries=1, used=1, spent=(Spent(0, 1),))
NEW = Cycle(1, 1)
"""The first cycle that n1 begins after C0."""


def test_a_candidate_asks_once_a_majority_has_come() -> None:
    talk = Takeover()
    assert talk.machine.role is Role.CANDIDATE
    assert talk.come(0, 2) == []
    assert talk.come(4) == [Mail(rank, 1, 1, Prepare(1)) for rank in (0, 2, 4)]
    assert talk.come(3) == [Mail(3, 1, 1, Prepare(1))]
    assert talk.machine.term is None


def test_nodes_that_have_gone_again_do_not_count() -> None:
    talk = Takeover()
    talk.come(0, 2)
    talk.silent = {0, 2}
    talk.wait(TIMEOUTS.coordinator)
    assert talk.come(4) == []
    assert talk.machine.role is Role.CANDIDATE


def test_with_promises_of_a_majority_the_cycle_simply_goes_on() -> None:
    talk = Takeover()
    talk.come(0, 1, 2, 3, 4)
    assert talk.promise(0, 2) == []
    done = talk.promise(3)
    assert talk.machine.term == 1
    assert talk.machine.cycle == C0
    assert done == [
        LookForVerdict(),
        talk.go_on(0, term=1),
        talk.go_on(2, term=1),
        talk.standby(3, term=1),
    ]
    assert talk.promise(1, 4) == [talk.go_on(1, term=1), talk.standby(4, term=1)]
    assert talk.wait(2 * TIMEOUTS.node_lost) == []
    assert talk.pulse.term == 1


def test_a_signal_that_the_former_coordinator_received_is_not_forgotten() -> None:
    """scancel: the coordinator is dead, the workers have exited with 0, and one node's Register has the signal."""
    talk = Takeover()
    talk.come(0, 1, 2, 3, 4)
    over = ran(1, succeeded=C0)
    talk.register(1, memory=over, told="SIGTERM")
    for rank in (0, 2):
        talk.register(rank, memory=over)
    assert talk.machine.term == 1 and talk.machine.state.commit.proposal is None
    talk.slurm(SlurmDecision.CANCELLED)
    assert talk.machine.state.commit.proposal == Verdict(Outcome.CANCELLED, "n1 was told to end: SIGTERM")


def test_the_pulse_has_the_term_as_soon_as_the_coordinator_is_in_charge() -> None:
    talk = Takeover()
    talk.take(0, 1, 2)
    assert talk.pulse.term == 1


def test_the_cycle_that_goes_on_can_succeed_or_fail() -> None:
    talk = Takeover()
    talk.take(0, 1, 2, 3, 4)
    assert talk.hear(failed(2, term=1)) == [stop(rank, term=1) for rank in range(3)]
    for rank in (0, 1):
        talk.hear(stopped(rank, term=1))
    done = mailed(talk.hear(stopped(2, term=1)), Run)
    assert {rank: run.cycle for rank, run in done.items() if isinstance(run, Run)} == dict.fromkeys(range(3), NEW)
    for rank in (0, 1):
        talk.hear(succeeded(rank, NEW, term=1))
    assert set(mailed(talk.hear(succeeded(2, NEW, term=1)), Propose)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("holder", [0, 4], ids=["among the first", "late"])
def test_the_used_part_of_the_budget_stays_used(holder: int) -> None:
    memory = ran(ledger=ONE_USED) if holder == 0 else Memory(0, ledger=ONE_USED)
    talk = Takeover(memories={holder: memory}, max_restarts=1)
    talk.take(0, 1, 2, 3, 4)
    assert set(mailed(talk.hear(failed(2, term=1)), Stop)) == {0, 1, 2}
    for rank in (0, 1, 2):
        talk.hear(stopped(rank, term=1))
    assert set(mailed(talk.wait(TIMEOUTS.probe + BEAT), Propose)) == {0, 1, 2, 3, 4}


def test_an_active_node_that_never_ran_the_cycle_ends_it() -> None:
    talk = Takeover(memories={2: Memory(0)}, running=(0, 1))
    done = talk.take(0, 1, 2, 3, 4)
    assert set(mailed(done, Stop)) == {0, 1}
    assert set(mailed(done, Run)) == set()
    talk.hear(stopped(0, term=1))
    assert set(mailed(talk.hear(stopped(1, term=1)), Run)) == {0, 1, 2}
    assert talk.machine.state.cycles.ledger.used == 0  # no worker has failed


def test_a_failure_that_no_coordinator_received_is_in_the_register() -> None:
    talk = Takeover(memories={2: ran(failures=(replace(FAILURE, infra_rank=2),))}, running=(0, 1))
    done = talk.take(0, 1, 2, 3, 4)
    assert set(mailed(done, Stop)) == {0, 1}
    talk.hear(stopped(0, term=1))
    talk.hear(stopped(1, term=1))
    assert talk.machine.state.cycles.ledger.used == 1


def test_a_success_that_no_coordinator_received_is_in_the_register() -> None:
    memories = {rank: ran(succeeded=C0) for rank in range(3)}
    talk = Takeover(memories=memories, running=())
    done = talk.take(0, 1, 2)
    verdicts = mailed(done, Propose)
    assert verdicts == {rank: Propose(1, SUCCESS) for rank in (0, 1, 2)}


def test_no_cycle_begins_while_a_member_that_has_not_registered_may_run_workers() -> None:
    """Invariant 10: n2, which has not registered, may run C0, or a cycle that no registered node ran."""
    talk = Takeover(memories={1: Memory(0)}, running=(0,))
    assert set(mailed(talk.take(0, 1, 3), Stop)) == {0}
    began = talk.now
    assert mailed(talk.hear(stopped(0, term=1)), Run) == {}
    while not (runs := mailed(talk.wait(BEAT), Run)):
        assert talk.now < began + TIMEOUTS.node_lost + 2 * BEAT
    assert talk.now >= began + TIMEOUTS.node_lost
    assert set(runs) == {0, 1, 3}


def test_no_first_cycle_begins_while_a_member_has_not_registered() -> None:
    memories = {rank: Memory(0) for rank in range(5)}
    talk = Takeover(memories=memories, running=())
    talk.take(0, 1, 3, 4)
    assert mailed(talk.wait(TIMEOUTS.node_lost - BEAT), Run) == {}
    assert set(mailed(talk.promise(2), Run)) == {0, 1, 2}


def test_a_node_that_has_registered_and_not_promised_yet_gets_no_work() -> None:
    """n0 ran the only cycle, alone; its worker failed. Its report counts from its promise on, and not sooner."""
    failure = replace(FAILURE, infra_rank=0)
    memories = {0: ran(group="0", failures=(failure,)), 1: Memory(0), 2: Memory(0)}
    talk = Takeover(3, memories, running=(), active=1, max_restarts=0)
    talk.deaf = {1, 2}
    talk.take(1, 2)
    assert mailed(talk.come(0), Prepare) == {0: Prepare(1)}
    for rank in (1, 2):
        assert mailed(talk.hear(messages.RosterKept(1, rank, 1, talk.rosters[-1].stamp)), Run) == {}
    assert mailed(talk.wait(2 * BEAT), Run) == {}
    proposals = mailed(talk.promise(0) + talk.wait(2 * BEAT), Propose)
    verdict = Verdict(Outcome.FAILED, "no restarts allowed: a worker (n0, local 0) exited with 3")
    assert proposals == {rank: Propose(1, verdict) for rank in range(3)}


def test_a_newer_cycle_that_is_learnt_later_counts() -> None:
    """n0 began 0.1 with n3 instead of n2, and died before any of the nodes that register first got its Run."""
    talk = Takeover(memories={3: ran(newest=C1, group="0-1,3")}, running=(0, 1, 3))
    done = talk.take(0, 1, 4)
    assert talk.machine.cycle == C0
    assert set(mailed(done, Continue)) == {0, 1}
    talk.come(3)
    done = talk.promise(3)
    assert talk.machine.cycle == C1
    assert mailed(done, Run) == {}
    assert 3 in mailed(done, Stop)
    assert {0, 1} <= set(mailed(done, Stop))
    for rank, cycle in ((0, C0), (1, C0), (3, C1)):
        assert mailed(talk.hear(stopped(rank, cycle, term=1)), Run) == {}  # n2 has not been heard yet
    runs = mailed(talk.wait(TIMEOUTS.node_lost), Run)
    assert set(runs) == {0, 1, 3}


def test_no_work_before_a_majority_keeps_the_new_list() -> None:
    talk = Takeover()
    talk.deaf = {0, 1, 2, 3, 4}
    talk.take(0, 1, 2, 3, 4)
    talk.hear(failed(0, term=1))
    for rank in range(3):
        assert mailed(talk.hear(stopped(rank, term=1)), Run) == {}
    roster = talk.rosters[-1]
    assert roster == Roster(1, 0, "0-4")
    assert mailed(talk.hear(messages.RosterKept(1, 1, 1, roster.stamp)), Run) == {}
    assert mailed(talk.hear(messages.RosterKept(1, 2, 1, (0, 9))), Run) == {}
    assert mailed(talk.hear(messages.RosterKept(1, 2, 1, roster.stamp)), Run) == {}
    assert set(mailed(talk.hear(messages.RosterKept(1, 3, 1, roster.stamp)), Run)) == {0, 1, 2}


def test_a_joiner_gets_no_work_before_both_majorities_keep_the_new_roster() -> None:
    """n1 was lost and taken off the roster. Now it is back, and is the only node that can replace n2."""
    talk = Talk(nodes=4, active=3)
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    for rank in (0, 2):
        talk.hear(stopped(rank))
    talk.wait(BEAT)
    assert talk.rosters[-1].members == "0,2-3"
    talk.deaf = {0, 2, 3}
    talk.silent = set()
    talk.register(1, connection=2, memory=Memory(0, newest=C0, group="0-2"))
    talk.wait(BEAT)
    joint = talk.rosters[-1]
    assert (joint.members, joint.former) == ("0,2-3,1", "0,2-3")
    talk.hear(messages.Goodbye(0, 2, 1, None))
    for rank in (0, 3):
        assert mailed(talk.hear(stopped(rank, C1)), Run) == {}
    assert mailed(talk.wait(1), Run) == {}
    assert mailed(talk.hear(messages.RosterKept(0, 3, 1, joint.stamp)), Run) == {}
    assert set(mailed(talk.hear(messages.RosterKept(0, 0, 1, joint.stamp)), Run)) == {0, 1, 3}


def test_the_newest_list_is_the_one_whose_majority_is_asked() -> None:
    """n0 had taken n2 and n3 off the roster. Two of n0, n1 and n4 are a majority; two of five nodes are not."""
    shorter = Roster(0, 2, "0-1,4")
    talk = Takeover(memories={1: ran(roster=shorter)}, running=(1,))
    assert talk.come(1) == []
    assert mailed(talk.come(4), Prepare) == {1: Prepare(1), 4: Prepare(1)}
    talk.promise(1)
    done = talk.promise(4)
    assert talk.machine.term == 1
    assert [roster.members for roster in talk.rosters] == ["0-1,4"]
    assert mailed(done, Stop).keys() == {1}  # n2, which was given up, was one of the active ones


def test_an_accepted_verdict_is_proposed_again_and_only_that() -> None:
    """The accepted verdict may have been decided already."""
    accepted = Memory(0, accepted=Accepted(0, FAILED))
    memories = {rank: ran(succeeded=C0) for rank in range(3)} | {3: accepted}
    talk = Takeover(memories=memories, running=())
    done = talk.take(0, 2, 3)
    assert mailed(done, Propose) == {rank: Propose(1, FAILED) for rank in (0, 2, 3)}
    assert mailed(talk.promise(1), Propose) == {1: Propose(1, FAILED)}
    assert mailed(talk.wait(2 * TIMEOUTS.node_lost), Propose) == {}
    for rank in (1, 3):
        assert talk.hear(verdict_kept(rank, term=1)) == []
    assert talk.hear(verdict_kept(2, term=1)) == decided(FAILED, "4")


def test_of_two_accepted_verdicts_the_later_one_may_be_the_jobs() -> None:
    memories = {2: ran(4, accepted=Accepted(0, FAILED)), 3: Memory(4, accepted=Accepted(4, SUCCESS))}
    talk = Takeover(memories=memories, running=())
    talk.come(0, 2, 3)
    assert talk.machine.state.leadership.election.term == 6
    done = talk.promise(0, 2, 3)
    assert mailed(done, Propose) == {rank: Propose(6, SUCCESS) for rank in (0, 2, 3)}


def test_a_verdict_that_only_a_minority_accepted_and_no_promise_has_is_void() -> None:
    talk = Takeover(memories={3: Memory(0, accepted=Accepted(0, FAILED))})
    done = talk.take(0, 1, 2)
    assert mailed(done, Propose) == {}
    assert mailed(talk.promise(3), Propose) == {}
    assert talk.machine.role is Role.LEADING


def test_a_verdict_that_a_node_has_as_the_jobs_is_written_at_once() -> None:
    talk = Takeover()
    talk.take(0, 1, 2)
    talk._memories[3] = Memory(0, verdict=FAILED)
    assert decided(FAILED, "4") == talk.promise(3)[:2]
    assert talk.written(FAILED) == [ClaimClose(FAILED)]
    assert set(mailed(talk.held(FAILED), messages.Close)) == {0, 1, 2, 3}


def test_a_verdicts_file_that_is_found_ends_the_job() -> None:
    talk = Takeover()
    assert LookForVerdict() in talk.take(0, 1, 2)
    assert talk.held(FAILED) == decided(FAILED, "3-4")
    assert talk.written(FAILED) == [ClaimClose(FAILED)]
    assert talk.held(FAILED) == [close(rank, FAILED, term=1) for rank in (0, 1, 2)]


def test_messages_of_another_term_keep_no_verdict() -> None:
    talk = Takeover(memories={rank: ran(succeeded=C0) for rank in range(3)}, running=())
    talk.take(0, 1, 2, 3, 4)
    for rank in range(5):
        assert talk.hear(verdict_kept(rank, term=0)) == []
        assert talk.hear(verdict_kept(rank, term=4)) == []
        assert talk.hear(verdict_kept(rank, incarnation=2, term=1)) == []
    assert talk.machine.verdict is None


def test_a_coordinator_with_a_decided_verdict_does_not_step_down() -> None:
    """A decided verdict is the job's in every term. It remains only to send it."""
    talk = Takeover(memories={rank: ran(succeeded=C0) for rank in range(3)}, running=())
    talk.take(0, 1, 2)
    for rank in range(3):
        talk.hear(verdict_kept(rank, term=1))
    assert talk.register(3, memory=Memory(8)) == []
    talk.now += 2 * TIMEOUTS.fence
    assert ClaimClose(SUCCESS) in talk.wait(BEAT)  # without the file, which has not been written in that time
    assert talk.written(FAILED) == []
    assert set(mailed(talk.held(SUCCESS), messages.Close)) == {0, 1, 2, 3}

"""Tests of former bugs in the machines, each with the shortest sequence of events that led to it."""

from __future__ import annotations

from tests.core import test_daemon_machine as daemons
from tests.core.agent import play as agents
from tests.core.machines import BEAT, C0, C1, TIMEOUTS, Talk, failed, job, mailed, stop, stopped, succeeded

from ft_supervisor.core.protocol import events, messages, orders
from ft_supervisor.core.protocol.actions import CopyVerdict, KillChild, Leave, Mail, StopWorkers
from ft_supervisor.core.protocol.model import Cycle, Memory, Roster
from ft_supervisor.core.quorum.election import Election
from ft_supervisor.core.quorum.roster_change import RosterChange


def test_a_coordinators_late_tick_moves_no_nodes_sign_of_life_into_the_future() -> None:
    talk = Talk()
    talk.begin()
    talk.wait(2)
    talk.now += TIMEOUTS.fence - BEAT
    talk.wait(BEAT)  # Heard comes first, then the late Tick
    assert all(member.heard <= talk.now for member in talk.machine.members)
    talk.silent = {1}
    assert talk.wait(TIMEOUTS.node_lost) == [stop(0), stop(2)]


def test_a_daemons_late_tick_moves_no_sign_of_life_into_the_future() -> None:
    play = daemons.Play()
    play.run()
    play.now += 30
    play.wait(BEAT)  # Alive comes first, then the late Tick
    play.state = None
    assert KillChild("agent") in play.wait(TIMEOUTS.agent + BEAT)


def test_a_node_that_stood_still_is_fenced_before_it_reads_a_new_lease() -> None:
    play = agents.running()
    play.feed(events.Looked(0.0, 1, 0, 0))
    play.now = 7.0
    assert StopWorkers(C0, 0.0) in play.feed(events.Looked(7.0, 20, 0, 20), events.Tick())


def test_a_node_that_stood_still_is_fenced_though_it_connects_anew() -> None:
    play = agents.running()
    play.now = 7.0
    done = play.feed(events.Disconnected("x", silent=True), events.Connected(0, 2, 20, 7.0, 9), events.Tick())
    assert StopWorkers(C0, 0.0) in done


def test_a_verdict_that_was_found_is_not_replaced_by_a_dying_agents_last_order() -> None:
    play = daemons.Play()
    play.state = orders.AgentState.JOINING
    play.wait(5)
    assert play.feed(events.VerdictFileFound(daemons.FAILED)) == [KillChild("agent")]
    play.order(orders.Remember(Memory(0, newest=C0)))
    assert play.feed(daemons.AGENT_GONE) == [CopyVerdict(daemons.FAILED), *daemons.LEFT_FAILED]


def test_enough_nodes_at_the_join_timeout_are_enough() -> None:
    talk = Talk()
    talk.register(0)
    talk.register(1)
    talk.wait(TIMEOUTS.join - 3)
    talk.register(2)
    assert set(mailed(talk.wait(10), messages.Run)) == {0, 1, 2}


def test_the_first_reason_for_a_nodes_end_decides_its_code() -> None:
    play = agents.running()
    play.feed(events.Disconnected("x", silent=False), events.Terminated("SIGTERM"))
    play.connection = 0
    play.wait(TIMEOUTS.fence)
    last = play.feed(events.WorkersGone(C0, 9))[-1]
    assert isinstance(last, Leave) and last.code == 130


# -- takeover


def candidate(nodes: int = 3, active: int = 1, infra_rank: int = 1) -> Talk:
    """Return the coordinator of another node, in a job in which node 0's has been in charge so far."""
    return Talk(nodes, active, infra_rank=infra_rank)


def running(group: str = "0-1", cycle: Cycle = C0, promise: int = 0) -> Memory:
    return Memory(promise, newest=cycle, group=group)


def test_a_message_after_the_nodes_promise_and_before_the_majoritys_is_not_lost() -> None:
    """By the node's Register its workers still run. Without the message the coordinator would always wait for them."""
    talk = candidate(nodes=3, active=1)
    talk.register(0, running=C0, memory=running("0"))
    assert set(mailed(talk.register(2), messages.Prepare)) == {0, 2}
    talk.register(0, running=C0, memory=running("0", promise=1))
    assert talk.hear(succeeded(0, term=1)) == []
    proposed = mailed(talk.register(2, memory=Memory(1)), messages.Propose)
    assert set(proposed) == {0, 2}


def test_a_store_that_has_not_taken_our_register_gives_no_lease() -> None:
    """The coordinator reads only the heartbeats of registered connections, so our node may be lost for it."""
    play = agents.running()
    play.feed(events.Disconnected("x", silent=False))
    play.connect(0)
    assert StopWorkers(C0, 0.0) in play.wait(TIMEOUTS.fence)


def test_a_node_is_not_replaced_on_a_proof_from_before_the_end_of_its_fence() -> None:
    """The lost node may have found another coordinator, with a majority that left us after that proof."""
    talk = Talk(nodes=5, active=2)
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost - 2)
    talk.silent = {1, 3, 4}  # n0 and n2 are no majority
    done = talk.wait(2)
    assert done == [stop(0)]  # n1 is lost
    assert mailed(talk.hear(stopped(0)) + talk.wait(1), messages.Run) == {}
    talk.silent = {1}
    assert set(mailed(talk.wait(2), messages.Run)) == {0, 2}


def test_a_node_that_stood_still_as_a_whole_is_asked_to_register_anew() -> None:
    """The node's connection lives, so the node does not know that it was lost for the coordinator."""
    talk = Talk()
    talk.begin()
    talk.silent = {3}
    talk.wait(TIMEOUTS.node_lost)
    talk.silent = set()
    assert Mail(3, 1, 1, messages.Prepare(0)) in talk.wait(BEAT)
    talk.register(3, memory=Memory(0))
    assert talk.machine.members[3].here
    assert talk.wait(2) == []


def test_a_node_that_is_being_taken_off_the_roster_gets_no_work() -> None:
    """A successor that finds the new roster would not ask the node."""
    change = RosterChange(Roster(-1, 0, "0-3"))
    change.begin()
    assert change.change(0, [0, 2, 3]) is not None
    assert change.eligible == {0, 2, 3}


def test_a_promise_to_a_former_process_of_the_same_node_does_not_count() -> None:
    """The promise was given before the new process asked, and proves nothing about the time since."""
    talk = Talk(3, 1, infra_rank=1, incarnation=2)
    talk.register(0)
    talk.register(2)
    talk.register(2, memory=Memory(1))
    talk.now += 1.0
    assert talk.register(1, memory=Memory(1)) == [Mail(1, 1, 1, messages.Prepare(1))]
    assert talk.register(1, memory=Memory(1)) != []  # the answer: now there is a majority
    assert talk.machine.term == 1


def test_a_term_that_was_had_without_a_vote_is_not_asked_for() -> None:
    a_job = job(3, 1, candidates=(2, 0))
    talk = Talk(infra_rank=2, a_job=a_job)
    assert talk.machine.term == 2
    talk.register(1, memory=Memory(0))  # it has promised n0 something
    assert set(mailed(talk.register(0, memory=Memory(0)), messages.Prepare).values()) == {messages.Prepare(5)}
    election = Election(a_job, 2, Memory())
    election.term = 2
    assert election.ask(0.0) == 5


def test_a_run_beside_live_workers_is_not_started_after_a_promise_to_another_coordinator() -> None:
    play = agents.running()
    play.feed(agents.mail(agents.run(C1)), agents.mail(agents.STOP), agents.mail(messages.Prepare(4)))
    play.feed(events.WorkersGone(C0, 9))
    assert play.machine.running is None


def test_a_spare_that_is_just_becoming_a_member_again_is_waited_for() -> None:
    talk = Talk(nodes=3, active=3)
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    talk.hear(stopped(0))
    talk.hear(stopped(2))
    talk.wait(TIMEOUTS.node_lost - BEAT)
    talk.silent = set()
    talk.register(1, incarnation=2, memory=running("0-2"))
    assert set(mailed(talk.wait(2 * BEAT), messages.Run)) == {0, 1, 2}


def test_a_cycle_that_a_new_coordinator_learns_late_goes_on() -> None:
    """None of the nodes that had promised belongs to the cycle, which simply goes on."""
    talk = candidate(nodes=5, active=2, infra_rank=2)
    for infra_rank in (2, 3, 4):
        talk.register(infra_rank)
    for infra_rank in (2, 3, 4):
        talk.register(infra_rank, memory=Memory(2))
    assert talk.machine.term == 2
    assert talk.machine.cycle is None
    for infra_rank in (0, 1):
        talk.register(infra_rank, running=C0, memory=running())
        done = talk.register(infra_rank, running=C0, memory=running(promise=2))
        assert mailed(done, messages.Stop) == {}
        assert mailed(done, messages.Continue) != {}
    talk.hear(succeeded(0, term=2))
    assert mailed(talk.hear(succeeded(1, term=2)), messages.Propose) != {}


def test_an_old_verdict_does_not_stay_behind_when_a_coordinator_is_candidate_again() -> None:
    talk = Talk(nodes=3, active=1)
    talk.begin()
    talk.hear(messages.ToldToEnd(0, 2, 1, "SIGTERM"))
    talk.register(1, memory=Memory(7))
    for infra_rank in (0, 1):
        talk.register(infra_rank, memory=Memory(9))
    assert talk.machine.term == 9
    for infra_rank in (0, 1, 2):
        talk.hear(messages.VerdictKept(9, infra_rank, 1))
    assert talk.machine.verdict is None


def test_a_cycle_that_is_learnt_after_one_of_its_nodes_was_lost_begins_anew() -> None:
    """n0 has succeeded in the cycle, but n2, which is lost, never reports a success."""
    talk = candidate(nodes=5, active=2)
    for infra_rank in (1, 3, 4, 1, 3, 4):
        talk.register(infra_rank, memory=Memory(talk.machine.state.leadership.election.term or 0))
    assert talk.machine.term == 1
    talk.wait(TIMEOUTS.node_lost + BEAT)
    assert not talk.machine.members[2].here
    done = talk.register(0, memory=Memory(1, newest=C0, group="0,2", succeeded=C0))
    assert set(mailed(done + talk.wait(3 * TIMEOUTS.node_lost), messages.Run)) == {0, 1}


def test_a_register_from_before_our_run_is_no_proof_that_nothing_runs() -> None:
    """n0 has started the cycle since. It gets Stop once more, and the coordinator waits for its workers' end."""
    talk = Talk()
    talk.begin()
    talk.hear(failed(1))
    talk.hear(stopped(1))
    talk.hear(stopped(2))
    assert talk.register(0, memory=Memory(0)) == [stop(0)]
    assert mailed(talk.wait(TIMEOUTS.probe + BEAT), messages.Run) == {}
    assert set(mailed(talk.hear(stopped(0)), messages.Run)) == {0, 1, 2}


def test_a_stop_of_a_cycle_that_the_node_never_ran_brings_its_group() -> None:
    """Otherwise the next coordinator would find a cycle in a memory that is newer than all others and has no group."""
    talk = Talk(nodes=5, active=2)
    talk.begin()
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    talk.hear(stopped(0))  # C1: n0 and n2
    mails = talk.machine.handle(events.Received(failed(0, C1)), talk.now)
    orders_to_stop = [mail.message for mail in mails if isinstance(mail, Mail)]
    assert orders_to_stop == [messages.Stop(0, C1, "0,2", TIMEOUTS.restart_grace)] * 2
    play = agents.Play()
    play.connect()
    play.feed(agents.standby(None))
    play.feed(agents.mail(messages.Stop(0, C1, "0-1", TIMEOUTS.restart_grace)))
    assert (play.machine.memory.newest, play.machine.memory.group) == (C1, "0-1")

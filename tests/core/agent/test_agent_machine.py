"""Tests the agent's machine, scenario by scenario: events in, actions out, compared as they are."""

from dataclasses import replace

import pytest
from tests.core.agent.play import (
    FAILED,
    NO_LEASE,
    STOP,
    SUCCESS,
    Play,
    goodbye,
    mail,
    memory_of,
    register,
    remember,
    run,
    running,
    standby,
    stopped,
)
from tests.core.machines import BEAT, C0, C1, C2, FAILURE, TIMEOUTS, job

from ft_supervisor.core.agent.agent import GUARD_MARGIN
from ft_supervisor.core.agent.lifecycle import ABANDON_MARGIN
from ft_supervisor.core.coordinator.interruptions import ASK_BOUND
from ft_supervisor.core.protocol import events, messages, orders
from ft_supervisor.core.protocol.actions import Dial, EnterBarrier, Leave, Send, Start, StopWorkers, Tell
from ft_supervisor.core.protocol.events import BarrierPassed, Connected, Disconnected, Looked, Terminated, Tick
from ft_supervisor.core.protocol.ledger import EMPTY, Ledger
from ft_supervisor.core.protocol.model import KILL_BOUND, Accepted, Memory, Outcome, Roster, Verdict
from ft_supervisor.core.protocol.orders import AgentState

# -- the way through a job


def test_join_run_succeed_and_leave() -> None:
    play = Play()
    assert play.first == [Dial((0,))]
    assert play.connect() == [remember(), register()]
    assert play.feed(standby(None)) == []
    assert play.machine.state is AgentState.STANDBY
    assert play.feed(mail(run())) == [remember(C0), Start(run())]
    assert play.feed(events.WorkersExited(C0, ())) == [
        remember(C0, succeeded=C0),
        Send(messages.WorkersSucceeded(0, 1, 1, C0)),
        EnterBarrier(C0, 3),
    ]
    assert play.feed(mail(messages.Close(0, SUCCESS))) == [
        remember(C0, succeeded=C0, verdict=SUCCESS),
        goodbye(SUCCESS),
        Leave(0, SUCCESS, "over"),
    ]


def test_a_failure_is_sent_and_the_other_workers_are_stopped() -> None:
    play = running()
    assert play.feed(events.WorkersExited(C0, (FAILURE,))) == [
        remember(C0, failures=(FAILURE,)),
        Send(messages.WorkersFailed(0, 1, 1, C0, (FAILURE,))),
        StopWorkers(C0, TIMEOUTS.restart_grace),
    ]
    assert play.feed(mail(STOP)) == [Send(messages.Stopping(0, 1, 1, C0))]
    assert play.feed(events.WorkersGone(C0, 33)) == [stopped(port=33)]
    assert play.feed(mail(run(C1))) == [remember(C1), Start(run(C1))]


def test_a_stop_is_answered_twice() -> None:
    play = running()
    assert play.feed(mail(STOP)) == [
        Send(messages.Stopping(0, 1, 1, C0)),
        StopWorkers(C0, TIMEOUTS.restart_grace),
    ]
    assert play.feed(events.WorkersExited(C0, (FAILURE,))) == []  # of being stopped
    assert play.feed(events.WorkersGone(C0, 33)) == [stopped(port=33)]


def test_a_stop_where_nothing_runs_is_answered_at_once() -> None:
    play = running()
    play.feed(events.WorkersExited(C0, ()))
    assert play.feed(mail(STOP)) == [stopped()]


def test_a_stop_that_overtook_its_run_makes_the_run_old() -> None:
    play = Play()
    play.connect()
    assert play.feed(mail(STOP)) == [remember(C0), stopped()]
    assert play.feed(mail(run(C0))) == []
    assert play.machine.running is None


@pytest.mark.parametrize("stops", [False, True])
def test_a_run_beside_live_workers_is_dropped_and_the_coordinator_learns_of_them(stops: bool) -> None:
    """Invariant 1. Only a coordinator that does not know of the workers sends such a Run."""
    play = running()
    if stops:
        play.feed(mail(STOP))
    assert play.feed(mail(run(C1)), mail(run(C1))) == []
    assert play.feed(Tick()) == [register(1, C0, memory_of(C0), serial=2)]
    assert play.feed(Tick()) == []
    assert play.machine.state is (AgentState.STOPPING if stops else AgentState.ACTIVE)
    assert play.machine.memory.newest == C0
    play.feed(mail(STOP))
    assert play.feed(events.WorkersGone(C0, 9)) == [stopped()]
    assert play.feed(mail(run(C1))) == [remember(C1), Start(run(C1))]


def test_standby_stops_what_runs() -> None:
    play = running()
    assert play.feed(standby(C0)) == [StopWorkers(C0, TIMEOUTS.restart_grace)]
    assert play.feed(events.WorkersGone(C0, 9)) == [stopped()]
    assert play.machine.state is AgentState.STANDBY


# -- what is old changes nothing (7)


@pytest.mark.parametrize(
    "old",
    [
        mail(run(C0)),
        mail(run(C1)),
        mail(run(C2, term=1)),
        mail(messages.Prepare(-1)),
        mail(messages.Members(1, Roster(1, 1, "0-2"))),
        mail(messages.Propose(1, SUCCESS)),
        mail(messages.Continue(1, C2, Ledger(7), 0.0)),
        mail(STOP),
        mail(messages.Stop(1, C1, "0-2", TIMEOUTS.restart_grace)),
        standby(C0),
        standby(None, term=1),
        events.WorkersExited(C0, ()),
        events.WorkersExited(C0, (FAILURE,)),
        events.WorkersGone(C0, 5),
        BarrierPassed(C0),
    ],
    ids=str,
)
def test_old_events_change_nothing(old: events.AgentEvent) -> None:
    play = running(C1)
    before = play.machine.memory
    assert play.feed(old) == []
    assert (play.machine.state, play.machine.running, play.machine.memory) == (AgentState.ACTIVE, C1, before)


def test_a_new_incarnation_does_not_start_its_nodes_newest_cycle_again() -> None:
    play = Play(memory_of(C1))
    assert play.first == [Dial((0, 1, 2))]
    assert play.connect() == [register(memory=memory_of(C1))]
    assert play.feed(mail(run(C1))) == []
    assert play.feed(mail(run(C2))) == [remember(C2), Start(run(C2))]


def test_a_new_incarnation_repeats_its_nodes_success() -> None:
    memory = memory_of(C1, succeeded=C1)
    play = Play(memory)
    assert play.connect() == [register(memory=memory)]
    assert play.machine.state is AgentState.SUCCEEDED
    assert play.machine.watched == C1


# -- connections


def test_a_reconnected_agent_registers_with_its_whole_memory() -> None:
    play = running()
    assert play.feed(Disconnected("gone", silent=False)) == [Dial((1, 2, 0))]
    assert play.connect(2) == [register(2, C0, memory_of(C0))]


def test_without_a_connection_nothing_is_sent() -> None:
    play = running()
    play.feed(Disconnected("gone", silent=False))
    assert play.feed(events.WorkersExited(C0, (FAILURE,))) == [
        remember(C0, failures=(FAILURE,)),
        StopWorkers(C0, TIMEOUTS.restart_grace),
    ]
    play.feed(events.WorkersGone(C0, 9))
    assert play.connect() == [register(2, None, memory_of(C0, failures=(FAILURE,)))]


def test_the_first_candidate_of_a_fresh_job_needs_no_vote_the_others_do() -> None:
    assert Play().connect(0) == [remember(), register()]
    assert Play().connect(1) == [register(memory=Memory())]
    assert Play(memory_of(promise=2)).connect(0) == [register(memory=memory_of(promise=2))]


# -- promises


def test_a_promise_is_kept_before_it_is_sent() -> None:
    play = running()
    assert play.feed(mail(messages.Prepare(4))) == [
        remember(C0, promise=4),
        register(1, C0, memory_of(C0, promise=4), serial=2),
    ]


def test_promises_only_rise() -> None:
    play = running()
    play.feed(mail(messages.Prepare(5)))
    assert play.feed(mail(messages.Prepare(4))) == []
    assert play.feed(mail(messages.Prepare(5))) == [register(1, C0, memory_of(C0, promise=5), serial=3)]
    assert play.machine.memory.promise == 5


def test_a_node_ignores_mail_of_terms_below_its_promise() -> None:
    play = running()
    play.feed(mail(messages.Prepare(4)))
    before = play.machine.memory
    old = (
        run(C1),
        STOP,
        messages.Standby(0, C0, Ledger(1), 0.0),
        messages.Propose(0, FAILED),
        messages.Members(0, Roster(0, 1, "0-2")),
    )
    assert play.feed(*(mail(message) for message in old)) == []
    assert play.machine.memory == before
    assert play.machine.running == C0


def test_a_coordinator_that_takes_over_has_the_workers_go_on() -> None:
    play = running()
    play.feed(Disconnected("gone", silent=False))
    play.connect(1)
    play.feed(mail(messages.Prepare(1)))
    assert play.feed(mail(messages.Continue(1, C0, Ledger(2), 0.0))) == [remember(C0, promise=1, ledger=Ledger(2))]
    assert play.machine.state is AgentState.ACTIVE
    assert play.feed(events.WorkersExited(C0, ()))[1:] == [
        Send(messages.WorkersSucceeded(1, 1, 1, C0)),
        EnterBarrier(C0, 3),
    ]


def test_rosters_are_kept_in_their_order() -> None:
    play = Play()
    play.connect()
    first, second = Roster(0, 1, "0-2", "0-3"), Roster(0, 2, "0-2")
    for roster in (first, second):
        assert play.feed(mail(messages.Members(0, roster))) == [
            remember(roster=roster),
            Send(messages.RosterKept(0, 1, 1, roster.stamp)),
        ]
    assert play.feed(mail(messages.Members(0, first))) == []
    assert play.feed(mail(messages.Members(0, second))) == [Send(messages.RosterKept(0, 1, 1, second.stamp))]


def test_a_proposed_verdict_is_kept_before_the_answer_and_ends_nothing() -> None:
    play = running()
    assert play.feed(mail(messages.Propose(0, FAILED))) == [
        remember(C0, accepted=Accepted(0, FAILED)),
        Send(messages.VerdictKept(0, 1, 1)),
    ]
    assert play.machine.state is AgentState.ACTIVE
    play.feed(mail(messages.Prepare(4)))
    assert play.feed(mail(messages.Propose(4, SUCCESS))) == [
        remember(C0, promise=4, accepted=Accepted(4, SUCCESS)),
        Send(messages.VerdictKept(4, 1, 1)),
    ]


def test_a_decided_verdict_is_accepted_in_every_term() -> None:
    play = running()
    play.feed(mail(messages.Prepare(4)))
    assert play.feed(mail(messages.Close(0, FAILED))) == [
        remember(C0, promise=4, verdict=FAILED),
        StopWorkers(C0, TIMEOUTS.stop_grace),
    ]


# -- the fence


def test_the_fence_ends_the_workers_with_no_grace_and_the_node_stands_by() -> None:
    play = running()
    play.wait(3)
    play.lease = False
    done = play.wait(TIMEOUTS.fence - 3 * BEAT)  # the last proof is of a round that appeared two beats before
    assert StopWorkers(C0, 0.0) not in done
    assert StopWorkers(C0, 0.0) in play.wait(BEAT)
    play.connect()
    assert play.feed(events.WorkersGone(C0, 9)) == [stopped()]
    assert play.machine.state is AgentState.STANDBY


def test_the_fence_counts_from_when_the_lease_was_asked_for() -> None:
    play = running()
    play.now = 1.0
    play.feed(Looked(1.0, 2, 0, 0))  # round 2 appeared after 0.0
    play.now = 2.0
    play.feed(Looked(2.0, 3, 0, 0))  # round 3 after 1.0
    play.now = 4.0
    play.feed(Looked(4.0, 4, 0, 3))
    play.connection = 0  # from now on nothing is heard
    assert StopWorkers(C0, 0.0) not in play.wait(1.0 + TIMEOUTS.fence - BEAT - play.now)
    assert StopWorkers(C0, 0.0) in play.wait(BEAT)


def test_a_lease_of_another_term_does_not_count() -> None:
    play = running()
    for beat in range(1, 10):
        play.now = beat * BEAT
        play.feed(Looked(play.now, 1 + beat, 3, beat))
    assert StopWorkers(C0, 0.0) in play.wait(TIMEOUTS.fence - play.now)


def test_a_lease_that_is_older_than_the_connection_does_not_count() -> None:
    play = running()
    play.feed(Disconnected("gone", silent=False), Connected(0, 2, 90, 0.0, 9))
    play.feed(mail(messages.Continue(0, C0, EMPTY, None)))
    for beat in range(1, 10):
        play.now = beat * BEAT
        play.feed(Looked(play.now, 90 + beat, 0, 90))
    play.connection = 0
    assert StopWorkers(C0, 0.0) in play.wait(TIMEOUTS.fence - play.now)


def test_a_standby_without_a_lease_looks_for_a_coordinator_and_leaves_in_the_end() -> None:
    play = Play()
    play.connect()
    play.feed(standby(None))
    play.lease = False
    play.feed(Disconnected("gone", silent=True))
    play.connection = 0
    assert play.wait(TIMEOUTS.takeover - BEAT) == []  # the shell goes on dialing
    assert play.wait(BEAT) == [NO_LEASE]


def test_a_node_without_a_coordinator_in_charge_fences_and_then_leaves() -> None:
    play = running()
    play.lease = False
    play.feed(Disconnected("gone", silent=True))
    play.connection = 0
    assert play.wait(TIMEOUTS.fence) == [StopWorkers(C0, 0.0)]
    play.feed(events.WorkersGone(C0, 9))
    assert play.wait(TIMEOUTS.takeover - TIMEOUTS.fence - BEAT) == []
    assert play.wait(BEAT) == [NO_LEASE]


def test_a_shorter_end_brings_the_kill_forward_and_a_longer_one_does_not() -> None:
    play = running()
    play.feed(Disconnected("gone", silent=False), Terminated("SIGTERM"))
    play.connection = 0
    assert play.wait(2 * TIMEOUTS.coordinator) == [StopWorkers(C0, TIMEOUTS.stop_grace, signal="")]
    assert play.wait(TIMEOUTS.fence - 2 * TIMEOUTS.coordinator) == [StopWorkers(C0, 0.0, signal="")]
    assert play.feed(events.CloseHeld(FAILED)) == [remember(C0, verdict=FAILED)]
    assert play.feed(events.WorkersGone(C0, 9)) == [Leave(1, FAILED, "over")]


def test_a_run_that_comes_after_a_long_stand_still_is_not_started() -> None:
    play = Play()
    play.connect()
    play.now = TIMEOUTS.fence
    assert play.feed(mail(run())) == [Dial((0, 1, 2))]  # the next Register reports that nothing runs here
    assert play.machine.running is None
    assert play.machine.memory.newest is None


def test_a_run_brings_the_age_of_its_lease() -> None:
    play = Play()
    play.connect()
    play.feed(mail(run(age=2.0)))
    play.connection = 0
    assert StopWorkers(C0, 0.0) not in play.wait(TIMEOUTS.fence - 2.0 - BEAT)
    assert StopWorkers(C0, 0.0) in play.wait(BEAT)


def test_the_daemon_gets_the_time_until_the_fence() -> None:
    play = running()
    play.now = 2.0
    assert play.alive() == orders.Alive("active", "0.0", 1, TIMEOUTS.fence - 2.0)
    play.feed(events.WorkersExited(C0, ()))
    assert play.alive() == orders.Alive("succeeded", "0.0", None, None)


def test_an_agent_without_a_coordinator_reports_joining_to_its_daemon() -> None:
    play = Play()
    play.connect()
    assert play.alive().state == "joining"
    play.feed(standby(None))
    assert play.alive().state == "standby"
    play.feed(Disconnected("gone", silent=False))
    assert play.alive().state == "joining"  # so that it looks for the verdict's file


def test_with_a_verdict_there_is_no_fence() -> None:
    play = running()
    assert play.feed(mail(messages.Close(0, FAILED))) == [
        remember(C0, verdict=FAILED),
        StopWorkers(C0, TIMEOUTS.stop_grace),
    ]
    play.lease = False
    assert StopWorkers(C0, 0.0) not in play.wait(TIMEOUTS.fence + 1)
    assert play.alive().fence_in is None


def unguarded(play: Play) -> bool:
    """Whether no workers have to be ended, with or without a lease."""
    return play.machine.fence_at is None and play.machine.guard_at is None


def test_the_guards_deadline_moves_with_each_proof_and_is_none_without_workers() -> None:
    """The guard acts a little later than the agent, and early enough that a lost node runs nothing."""
    play = Play()
    play.connect()
    assert unguarded(play)
    play = running()
    first = play.machine.fence_at
    assert first is not None and play.machine.guard_at == first + GUARD_MARGIN
    assert 0 < GUARD_MARGIN < KILL_BOUND
    play.wait(3 * BEAT)
    assert play.machine.fence_at is not None and play.machine.fence_at > first
    play.feed(events.WorkersExited(C0, ()))
    assert unguarded(play)
    play = running()
    play.feed(mail(messages.Close(0, FAILED)))
    assert unguarded(play)


def test_a_new_agent_of_a_job_that_has_run_is_not_as_patient_as_a_fresh_job() -> None:
    a_job = replace(job(), timeouts=replace(TIMEOUTS, join=10 * TIMEOUTS.takeover))
    play = Play(memory_of(C0), a_job)
    assert play.wait(TIMEOUTS.takeover - BEAT) == []
    assert play.wait(BEAT) == [NO_LEASE]


def test_the_end_of_fenced_workers_is_reported_to_the_daemon_at_once() -> None:
    """Otherwise the daemon would take the agent for one that has missed the fence."""
    play = running()
    play.now = TIMEOUTS.fence
    play.feed(Tick())
    told = [deed.order for deed in play.machine.handle(events.WorkersGone(C0, 9), play.now) if isinstance(deed, Tell)]
    assert told == [orders.Alive("joining", "0.0", None, None)]


def test_no_coordinator_at_all() -> None:
    play = Play()
    early = play.wait(TIMEOUTS.join - BEAT)
    assert early == [Dial((0, 1, 2))]  # the first candidate did not come
    assert play.wait(BEAT) == [Leave(75, None, f"no coordinator with a majority for {TIMEOUTS.join:g} s")]


@pytest.mark.parametrize("waited", [TIMEOUTS.takeover, 4.5 * TIMEOUTS.takeover, 100 * TIMEOUTS.takeover])
def test_nodes_give_up_together_though_some_have_lost_an_agent_on_the_way(waited: float) -> None:
    """The daemon's time counts, but a new agent has at least the time of a takeover, as it had no chance yet."""
    join = 5 * TIMEOUTS.takeover
    play = Play(None, replace(job(), timeouts=replace(TIMEOUTS, join=join)), waited)
    left = max(join - waited, TIMEOUTS.takeover)
    assert not [deed for deed in play.wait(left - BEAT) if isinstance(deed, Leave)]
    assert play.wait(BEAT) == [Leave(75, None, f"no coordinator with a majority for {join:g} s")]


# -- the end


def test_the_exit_barriers_key_makes_a_standby_ask_once_and_does_not_end_it() -> None:
    """Any process on the network can set the barrier's key."""
    play = Play()
    play.connect()
    play.feed(standby(C0))
    assert play.machine.watched == C0
    assert play.feed(BarrierPassed(C0)) == []
    assert play.wait(TIMEOUTS.close_grace - BEAT) == []  # the verdict comes by itself
    assert play.wait(BEAT) == [register(serial=2, round_=play.round)]
    play.feed(standby(C0))  # by the coordinator's message the cycle runs
    assert play.wait(10 * TIMEOUTS.takeover) == []
    leave = Leave(0, SUCCESS, SUCCESS.reason)
    assert play.feed(mail(messages.Close(0, SUCCESS))) == [remember(None, verdict=SUCCESS), goodbye(SUCCESS), leave]


def test_the_exit_barriers_key_touches_no_active_node() -> None:
    play = running()
    assert play.feed(BarrierPassed(C0)) == []
    assert play.wait(10 * TIMEOUTS.takeover) == []
    assert play.machine.state is AgentState.ACTIVE


def test_a_node_whose_success_got_lost_sends_it_again_after_the_barrier() -> None:
    play = running()
    play.feed(events.WorkersExited(C0, ()), BarrierPassed(C0))
    assert play.wait(TIMEOUTS.close_grace) == [
        register(memory=memory_of(C0, succeeded=C0), serial=2, round_=play.round)
    ]


def test_behind_the_barrier_and_without_a_coordinator_the_daemon_looks_for_the_verdict_at_once() -> None:
    play = Play()
    play.connect()
    play.feed(standby(C0))
    play.feed(BarrierPassed(C0))
    assert play.alive() == orders.Alive("standby", look=True)
    told = [d.order for d in play.machine.handle(Disconnected("gone", silent=False), play.now) if isinstance(d, Tell)]
    assert told == [orders.Alive("joining", look=True)]


def test_behind_the_barrier_a_node_that_finds_neither_coordinator_nor_verdict_ends_with_75() -> None:
    play = Play()
    play.connect()
    play.feed(standby(C0))
    play.wait(2.0)
    play.feed(BarrierPassed(C0), Disconnected("gone", silent=False))
    play.connection, since = 0, play.machine._follower.lease.since
    assert since is not None
    left = [deed for deed in play.wait(since + TIMEOUTS.takeover - play.now) if isinstance(deed, Leave)]
    assert left == [Leave(75, None, f"no coordinator with a majority for {TIMEOUTS.takeover:g} s")]
    assert play.now >= since + TIMEOUTS.takeover


def test_the_exit_barrier_of_a_former_cycle_has_no_effect() -> None:
    play = Play()
    play.connect()
    play.feed(standby(C0), BarrierPassed(C0), standby(C1))
    assert play.wait(TIMEOUTS.close_grace + 1) == []
    assert not play.alive().look


@pytest.mark.parametrize("how", [events.CloseHeld(FAILED), mail(messages.Close(0, FAILED))], ids=["key", "mail"])
def test_a_verdict_by_key_or_mail_ends_the_node(how: events.AgentEvent) -> None:
    play = running()
    assert play.feed(how, how) == [remember(C0, verdict=FAILED), StopWorkers(C0, TIMEOUTS.stop_grace)]
    assert play.feed(mail(run(C1))) == []
    assert play.feed(events.WorkersGone(C0, 9)) == [goodbye(FAILED), Leave(1, FAILED, "over")]


def test_the_first_verdict_stays() -> None:
    play = running()
    play.feed(events.CloseHeld(FAILED))
    assert play.feed(events.CloseHeld(SUCCESS)) == []
    assert play.machine.memory.verdict == FAILED


def test_workers_that_cannot_be_ended_do_not_keep_the_agent_for_ever() -> None:
    play = running()
    play.feed(events.CloseHeld(FAILED))
    assert play.wait(TIMEOUTS.stop_grace + KILL_BOUND + ABANDON_MARGIN - BEAT) == []
    assert play.wait(BEAT) == [Leave(1, FAILED, "workers that can't be ended")]


def test_a_signal_is_sent_to_the_coordinator_whose_verdict_is_awaited() -> None:
    play = running()
    assert play.feed(Terminated("SIGTERM"), Terminated("SIGTERM")) == [Send(messages.ToldToEnd(0, 1, 1, "SIGTERM"))]
    cancelled = Verdict(Outcome.CANCELLED, "n1 was told to end: SIGTERM")
    assert play.feed(mail(messages.Close(0, cancelled))) == [
        remember(C0, verdict=cancelled),
        StopWorkers(C0, TIMEOUTS.stop_grace, signal=""),  # Slurm has signalled them already
    ]
    assert play.feed(events.WorkersGone(C0, 9)) == [goodbye(cancelled), Leave(130, cancelled, cancelled.reason)]


def test_without_slurm_the_signal_is_passed_on() -> None:
    play = running(a_job=job(signal_workers=True))
    play.feed(Terminated("SIGTERM"))
    assert StopWorkers(C0, TIMEOUTS.stop_grace) in play.feed(events.CloseHeld(FAILED))


def test_a_signal_without_a_coordinator_ends_the_node() -> None:
    play = running()
    play.feed(Disconnected("gone", silent=False))
    play.connection = 0
    assert play.feed(Terminated("SIGTERM")) == []
    assert play.wait(2 * TIMEOUTS.coordinator - BEAT) == []  # there may soon be another coordinator
    assert play.wait(BEAT) == [StopWorkers(C0, TIMEOUTS.stop_grace, signal="")]
    reason = "told to end by a signal, and no coordinator answers"
    assert play.feed(events.WorkersGone(C0, 9)) == [Leave(130, None, reason)]


def test_a_signal_that_no_coordinator_received_is_in_the_next_register() -> None:
    play = running()
    play.feed(Disconnected("gone", silent=False), Terminated("SIGTERM"))
    play.connect(1)
    answers = play.feed(mail(messages.Prepare(1)))
    (register,) = [action.message for action in answers if isinstance(action, Send)]
    assert isinstance(register, messages.Register) and register.told == "SIGTERM"


def test_a_coordinator_that_does_not_answer_a_signal() -> None:
    play = running()
    play.feed(Terminated("SIGTERM"))
    assert play.wait(2 * TIMEOUTS.coordinator + ASK_BOUND - BEAT) == []
    assert play.wait(BEAT) == [StopWorkers(C0, TIMEOUTS.stop_grace, signal="")]

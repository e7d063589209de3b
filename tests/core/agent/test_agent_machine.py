"""An agent's machine that follows a coordinator, scenario by scenario: events in, deeds out."""

import pytest
from tests.core.agent.play import (
    FAILED,
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
from tests.core.machines import C0, C1, C2, FAILURE, TIMEOUTS

from ft_supervisor.core.protocol import events, messages
from ft_supervisor.core.protocol.actions import Dial, EnterBarrier, Leave, Send, Start, StopWorkers
from ft_supervisor.core.protocol.events import BarrierPassed, Disconnected, Tick
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.model import Accepted, Memory, Roster
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

"""The end of an agent's machine: the exit barrier, a verdict, and a signal."""

import pytest
from tests.core.agent.play import (
    FAILED,
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
)
from tests.core.machines import BEAT, C0, C1, TIMEOUTS, job

from ft_supervisor.core.agent.lifecycle import ABANDON_MARGIN
from ft_supervisor.core.coordinator.interruptions import ASK_BOUND
from ft_supervisor.core.protocol import events, messages, orders
from ft_supervisor.core.protocol.actions import Leave, Send, StopWorkers, Tell
from ft_supervisor.core.protocol.events import BarrierPassed, Disconnected, Terminated
from ft_supervisor.core.protocol.model import KILL_BOUND, Outcome, Verdict
from ft_supervisor.core.protocol.orders import AgentState


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

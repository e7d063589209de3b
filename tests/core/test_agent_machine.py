"""The agent's machine, scenario by scenario: events in, deeds out, compared as they are."""

import pytest
from tests.core.machines import BEAT, C0, C1, C2, FAILURE, TIMEOUTS, deeds, job, node

from ft_supervisor.core import events, messages, orders
from ft_supervisor.core.actions import EnterBarrier, Leave, Send, Start, StopWorkers, Tell
from ft_supervisor.core.agent import STOP_MARGIN, AgentMachine, State
from ft_supervisor.core.events import BarrierPassed, Connected, Disconnected, LeaseMoved, Mailed, Terminated, Tick
from ft_supervisor.core.model import KILL_BOUND, Cycle, Job, Memory, Outcome, Verdict

SUCCESS = Verdict(Outcome.SUCCESS, "over")
FAILED = Verdict(Outcome.FAILED, "over")


class Play:
    """An agent on node 1, its clock, and a lease that moves while it is connected."""

    def __init__(self, memory: Memory | None = None, a_job: Job | None = None) -> None:
        self.now = 0.0
        self.machine = AgentMachine(a_job or job(), node(1), 1, memory or Memory(), 0.0)
        self.lease = True

    def feed(self, *what: events.AgentEvent) -> list[object]:
        """Deeds of these events, what it tells its daemon each heartbeat left out."""
        answers: list[object] = []
        for event in what:
            answers += deeds(self.machine.handle(event, self.now))
        return [deed for deed in answers if not (isinstance(deed, Tell) and isinstance(deed.order, orders.Alive))]

    def wait(self, seconds: float) -> list[object]:
        """Ticks, each heartbeat."""
        answers: list[object] = []
        until = self.now + seconds
        while self.now < until:
            self.now += BEAT
            if self.lease:
                answers += self.feed(LeaseMoved(self.now))
            answers += self.feed(Tick())
        return answers

    def alive(self) -> orders.Alive:
        """What it tells its daemon at a tick."""
        told = [deed.order for deed in self.machine.handle(Tick(), self.now) if isinstance(deed, Tell)]
        assert isinstance(told[0], orders.Alive)
        return told[0]


def run(cycle: Cycle = C0, connection: int = 1, group_rank: int = 1, term: int = 0) -> messages.Run:
    return messages.Run(term, connection, cycle, group_rank, 3, cycle.n, 3, "a0", 100)


def mail(message: messages.ToAgent) -> Mailed:
    return Mailed(message)


def register(connection: int = 1, running: Cycle | None = None, memory: Memory | None = None) -> Send:
    return Send(messages.Register(0, node(1), 1, connection, 9, running, memory or Memory()))


def remember(newest: Cycle | None = None, **known: object) -> Tell:
    return Tell(orders.Remember(Memory(newest, **known)))  # type: ignore[arg-type]


def stopped(cycle: Cycle = C0, port: int = 9) -> Send:
    return Send(messages.WorkersStopped(0, 1, 1, cycle, port))


GOODBYE = Send(messages.Goodbye(0, 1, 1))
NO_LEASE = Leave(75, None, "no coordinator for 5 s")


def running(cycle: Cycle = C0, a_job: Job | None = None) -> Play:
    """An agent whose workers run."""
    play = Play(a_job=a_job)
    play.feed(Connected(9), mail(run(cycle)))
    assert play.machine.running == cycle
    return play


# -- the way through a job


def test_join_run_succeed_and_leave() -> None:
    play = Play()
    assert play.feed(Connected(9)) == [register()]
    assert play.feed(mail(messages.Standby(0, None))) == []
    assert play.machine.state is State.STANDBY
    assert play.feed(mail(run())) == [remember(C0), Start(run())]
    assert play.feed(events.WorkersExited(C0, ())) == [
        remember(C0, succeeded=C0),
        Send(messages.WorkersSucceeded(0, 1, 1, C0)),
        EnterBarrier(C0, 3),
    ]
    assert play.feed(mail(messages.Close(0, SUCCESS))) == [
        remember(C0, succeeded=C0, verdict=SUCCESS),
        GOODBYE,
        Leave(0, SUCCESS, "over"),
    ]


def test_a_failure_is_told_and_the_other_workers_are_stopped() -> None:
    play = running()
    assert play.feed(events.WorkersExited(C0, (FAILURE,))) == [
        remember(C0, failures=(FAILURE,)),
        Send(messages.WorkersFailed(0, 1, 1, C0, (FAILURE,))),
        StopWorkers(C0, TIMEOUTS.restart_grace),
    ]
    assert play.feed(mail(messages.Stop(0, C0))) == [Send(messages.Stopping(0, 1, 1, C0))]
    assert play.feed(events.WorkersGone(C0, 33)) == [stopped(port=33)]
    assert play.feed(mail(run(C1))) == [remember(C1), Start(run(C1))]


def test_a_stop_is_answered_twice() -> None:
    play = running()
    assert play.feed(mail(messages.Stop(0, C0))) == [
        Send(messages.Stopping(0, 1, 1, C0)),
        StopWorkers(C0, TIMEOUTS.restart_grace),
    ]
    assert play.feed(events.WorkersExited(C0, (FAILURE,))) == []  # of being stopped
    assert play.feed(events.WorkersGone(C0, 33)) == [stopped(port=33)]


def test_a_stop_where_nothing_runs_is_answered_at_once() -> None:
    play = running()
    play.feed(events.WorkersExited(C0, ()))
    assert play.feed(mail(messages.Stop(0, C0))) == [stopped()]


def test_a_stop_that_overtook_its_run_makes_the_run_old() -> None:
    play = Play()
    play.feed(Connected(9))
    assert play.feed(mail(messages.Stop(0, C0))) == [remember(C0), stopped()]
    assert play.feed(mail(run(C0))) == []
    assert play.machine.running is None


def test_a_run_waits_until_the_former_workers_are_gone() -> None:
    """Invariant 1."""
    play = running()
    assert play.feed(mail(run(C1))) == [remember(C1), StopWorkers(C0, TIMEOUTS.restart_grace)]
    assert play.feed(mail(run(C2))) == [remember(C2)]
    assert play.feed(events.WorkersGone(C0, 9)) == [stopped(), Start(run(C2))]


def test_standby_stops_what_runs_and_what_would_run_next() -> None:
    play = running()
    play.feed(mail(run(C1)))
    assert play.feed(mail(messages.Standby(0, C1))) == []
    assert play.feed(events.WorkersGone(C0, 9)) == [stopped()]
    assert play.machine.state is State.STANDBY


# -- what is old changes nothing (7)


@pytest.mark.parametrize(
    "old",
    [
        mail(run(C0)),
        mail(run(C1)),
        mail(run(C2, term=1)),
        mail(run(C2, connection=0)),
        mail(messages.Stop(0, C0)),
        mail(messages.Stop(1, C1)),
        mail(messages.Standby(0, C0)),
        mail(messages.Standby(1, None)),
        mail(messages.Close(1, SUCCESS)),
        events.WorkersExited(C0, ()),
        events.WorkersExited(C0, (FAILURE,)),
        events.WorkersGone(C0, 5),
        BarrierPassed(C0),
    ],
    ids=str,
)
def test_what_is_old_changes_nothing(old: events.AgentEvent) -> None:
    play = running(C1)
    before = play.machine.memory
    assert play.feed(old) == []
    assert (play.machine.state, play.machine.running, play.machine.memory) == (State.ACTIVE, C1, before)


def test_a_run_older_than_the_last_register_is_dropped() -> None:
    play = Play()
    play.feed(Connected(9), Disconnected("gone"), Connected(10))
    assert play.feed(mail(run(connection=1))) == []
    assert play.feed(mail(run(connection=2))) == [remember(C0), Start(run(connection=2))]


def test_a_new_incarnation_knows_what_the_former_one_was_told() -> None:
    play = Play(Memory(C1))
    assert play.feed(Connected(9)) == [register(memory=Memory(C1))]
    assert play.feed(mail(run(C1))) == []
    assert play.feed(mail(run(C2))) == [remember(C2), Start(run(C2))]


def test_a_new_incarnation_repeats_its_nodes_success() -> None:
    memory = Memory(C1, succeeded=C1)
    play = Play(memory)
    assert play.feed(Connected(9)) == [register(memory=memory)]
    assert play.machine.state is State.SUCCEEDED
    assert play.machine.watched == C1


# -- connections and the fence


def test_a_reconnected_agent_tells_the_whole_truth() -> None:
    play = running()
    assert play.feed(Disconnected("gone")) == []
    assert play.feed(Connected(9)) == [register(2, C0, Memory(C0))]


def test_without_a_connection_nothing_is_sent() -> None:
    play = running()
    play.feed(Disconnected("gone"))
    assert play.feed(events.WorkersExited(C0, (FAILURE,))) == [
        remember(C0, failures=(FAILURE,)),
        StopWorkers(C0, TIMEOUTS.restart_grace),
    ]
    play.feed(events.WorkersGone(C0, 9))
    assert play.feed(Connected(9)) == [register(2, None, Memory(C0, failures=(FAILURE,)))]


def test_the_fence_ends_the_workers_with_no_grace() -> None:
    play = running()
    play.wait(3)
    play.lease = False
    assert play.wait(TIMEOUTS.fence - BEAT) == []
    assert play.wait(BEAT) == [StopWorkers(C0, 0.0)]
    assert play.feed(events.WorkersGone(C0, 9)) == [GOODBYE, NO_LEASE]


def test_the_fence_counts_from_when_the_lease_was_asked_for() -> None:
    play = running()
    play.lease = False
    play.now = 4.0
    play.feed(LeaseMoved(1.0))
    play.feed(LeaseMoved(0.5))  # an answer that was overtaken
    assert play.wait(1.0 + TIMEOUTS.fence - BEAT - play.now) == []
    assert play.wait(BEAT) == [StopWorkers(C0, 0.0)]


def test_the_fence_ends_a_standby_too() -> None:
    play = Play()
    play.feed(Connected(9), mail(messages.Standby(0, None)))
    play.lease = False
    assert play.wait(TIMEOUTS.fence) == [GOODBYE, NO_LEASE]


def test_a_shorter_end_brings_the_kill_forward_and_a_longer_one_does_not() -> None:
    play = running()
    play.lease = False
    assert play.feed(Disconnected("gone"), Terminated("SIGTERM")) == [
        StopWorkers(C0, TIMEOUTS.stop_grace, signal=False)
    ]
    assert play.wait(TIMEOUTS.fence) == [StopWorkers(C0, 0.0, signal=False)]
    assert play.feed(events.Ended(FAILED)) == [remember(C0, verdict=FAILED)]
    assert play.feed(events.WorkersGone(C0, 9)) == [Leave(1, FAILED, "over")]


def test_a_run_that_comes_after_a_long_stand_still_is_not_started() -> None:
    play = Play()
    play.feed(Connected(9))
    play.now = TIMEOUTS.fence
    assert play.feed(mail(run())) == [GOODBYE, NO_LEASE]
    assert play.machine.running is None


def test_the_daemon_hears_when_the_fence_will_be_over() -> None:
    play = running()
    play.now = 2.0
    assert play.alive() == orders.Alive("active", "0.0", 1, TIMEOUTS.fence - 2.0)
    play.feed(events.WorkersExited(C0, ()))
    assert play.alive() == orders.Alive("succeeded", "0.0", None, None)


def test_with_a_verdict_there_is_no_fence() -> None:
    play = running()
    assert play.feed(mail(messages.Close(0, FAILED))) == [
        remember(C0, verdict=FAILED),
        StopWorkers(C0, TIMEOUTS.stop_grace),
    ]
    play.lease = False
    assert play.wait(TIMEOUTS.fence + 1) == []
    assert play.alive().fence_in is None


def test_no_coordinator_at_all() -> None:
    play = Play()
    play.lease = False
    assert play.wait(TIMEOUTS.join - BEAT) == []
    assert play.wait(BEAT) == [Leave(75, None, "no coordinator within 60 s")]


# -- the end


def test_a_standby_leaves_with_0_when_the_exit_barrier_is_passed() -> None:
    play = Play()
    play.feed(Connected(9), mail(messages.Standby(0, C0)))
    assert play.machine.watched == C0
    play.feed(BarrierPassed(C0))
    assert play.wait(TIMEOUTS.close_grace - BEAT) == []  # the verdict is better
    assert play.wait(BEAT) == [GOODBYE, Leave(0, None, "the exit barrier of cycle 0.0 is passed")]


def test_an_active_node_leaves_after_its_own_workers() -> None:
    play = running()
    play.feed(BarrierPassed(C0))
    assert play.wait(TIMEOUTS.close_grace + 1) == []
    play.feed(events.WorkersExited(C0, ()))
    assert play.wait(BEAT) == [GOODBYE, Leave(0, None, "the exit barrier of cycle 0.0 is passed")]


def test_a_passed_barrier_and_no_lease_is_success() -> None:
    play = Play()
    play.feed(Connected(9), mail(messages.Standby(0, C0)), BarrierPassed(C0))
    play.now = TIMEOUTS.fence
    assert play.feed(Tick()) == [GOODBYE, Leave(0, None, "no coordinator for 5 s")]


def test_the_barrier_of_a_former_cycle_is_nothing() -> None:
    play = Play()
    play.feed(Connected(9), mail(messages.Standby(0, C0)), BarrierPassed(C0), mail(messages.Standby(0, C1)))
    assert play.wait(TIMEOUTS.close_grace + 1) == []


@pytest.mark.parametrize("how", [events.Ended(FAILED), mail(messages.Close(0, FAILED))], ids=["key", "mail"])
def test_a_verdict_ends_the_node_however_it_comes(how: events.AgentEvent) -> None:
    play = running()
    assert play.feed(how, how) == [remember(C0, verdict=FAILED), StopWorkers(C0, TIMEOUTS.stop_grace)]
    assert play.feed(mail(run(C1))) == []
    assert play.feed(events.WorkersGone(C0, 9)) == [GOODBYE, Leave(1, FAILED, "over")]


def test_the_first_verdict_stays() -> None:
    play = running()
    play.feed(events.Ended(FAILED))
    assert play.feed(events.Ended(SUCCESS)) == []
    assert play.machine.memory.verdict == FAILED


def test_workers_that_cannot_be_ended_hold_nobody_forever() -> None:
    play = running()
    play.feed(events.Ended(FAILED))
    assert play.wait(TIMEOUTS.stop_grace + KILL_BOUND + STOP_MARGIN - BEAT) == []
    assert play.wait(BEAT) == [Leave(1, FAILED, "workers that can't be ended")]


def test_a_signal_is_told_to_the_coordinator_whose_verdict_is_awaited() -> None:
    play = running()
    assert play.feed(Terminated("SIGTERM"), Terminated("SIGTERM")) == [Send(messages.Leaving(0, 1, 1, "SIGTERM"))]
    cancelled = Verdict(Outcome.CANCELLED, "n1 was told to end: SIGTERM")
    assert play.feed(mail(messages.Close(0, cancelled))) == [
        remember(C0, verdict=cancelled),
        StopWorkers(C0, TIMEOUTS.stop_grace, signal=False),  # Slurm has signalled them already
    ]
    assert play.feed(events.WorkersGone(C0, 9)) == [GOODBYE, Leave(130, cancelled, cancelled.reason)]


def test_without_slurm_the_signal_is_passed_on() -> None:
    play = running(a_job=job(signal_workers=True))
    play.feed(Terminated("SIGTERM"))
    assert StopWorkers(C0, TIMEOUTS.stop_grace, signal=True) in play.feed(events.Ended(FAILED))


def test_a_signal_without_a_coordinator_ends_the_node() -> None:
    play = running()
    play.feed(Disconnected("gone"))
    assert play.feed(Terminated("SIGTERM")) == [StopWorkers(C0, TIMEOUTS.stop_grace, signal=False)]
    reason = "told to end by a signal, and no coordinator to tell"
    assert play.feed(events.WorkersGone(C0, 9)) == [Leave(130, None, reason)]


def test_a_coordinator_that_does_not_answer_a_signal() -> None:
    play = running()
    play.feed(Terminated("SIGTERM"))
    assert play.wait(2 * TIMEOUTS.coordinator - BEAT) == []
    assert play.wait(BEAT) == [StopWorkers(C0, TIMEOUTS.stop_grace, signal=False)]

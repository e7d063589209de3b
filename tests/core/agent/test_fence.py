"""The fence of an agent's machine: when it ends the workers, what it counts from, and when the node leaves."""

from dataclasses import replace

import pytest
from tests.core.agent.play import FAILED, NO_LEASE, Play, mail, memory_of, remember, run, running, standby, stopped
from tests.core.machines import BEAT, C0, TIMEOUTS, job

from ft_supervisor.core.agent.agent import GUARD_MARGIN
from ft_supervisor.core.protocol import events, messages, orders
from ft_supervisor.core.protocol.actions import Dial, Leave, StopWorkers, Tell
from ft_supervisor.core.protocol.events import Connected, Disconnected, Looked, Terminated, Tick
from ft_supervisor.core.protocol.ledger import EMPTY
from ft_supervisor.core.protocol.model import KILL_BOUND
from ft_supervisor.core.protocol.orders import AgentState


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

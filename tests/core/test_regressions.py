"""What once went wrong in the machines, each with the shortest way there."""

from __future__ import annotations

from tests.core import test_agent_machine as agents
from tests.core import test_daemon_machine as daemons
from tests.core.machines import BEAT, C0, TIMEOUTS, Talk, stop

from ft_supervisor.core import events, orders
from ft_supervisor.core.actions import KillChild, Leave, StopWorkers, WriteVerdict
from ft_supervisor.core.model import Memory


def test_a_coordinators_late_tick_moves_nobodys_sign_of_life_into_the_future() -> None:
    talk = Talk()
    talk.begin()
    talk.wait(2)
    talk.now += 30.0
    talk.wait(0.5)  # Heard comes first, then the late Tick
    assert all(member.heard <= talk.now for member in talk.machine.members)
    talk.silent = {1}
    assert talk.wait(TIMEOUTS.node_lost + 0.5) == [stop(0), stop(2)]


def test_a_daemons_late_tick_moves_no_sign_of_life_into_the_future() -> None:
    play = daemons.Play()
    play.run()
    play.now += 30
    play.wait(BEAT)  # Alive comes first, then the late Tick
    play.state = None
    assert KillChild("agent") in play.wait(TIMEOUTS.agent + BEAT)


def test_a_node_that_stood_still_is_fenced_before_it_hears_of_a_new_lease() -> None:
    play = agents.running()
    play.feed(events.LeaseMoved(0.0))
    play.now = 7.0
    assert play.feed(events.LeaseMoved(7.0), events.Tick()) == [StopWorkers(C0, 0.0)]


def test_a_node_that_stood_still_is_fenced_though_it_connects_anew() -> None:
    play = agents.running()
    play.feed(events.LeaseMoved(0.0))
    play.now = 7.0
    done = play.feed(events.Disconnected("x"), events.Connected(9), events.LeaseMoved(7.0), events.Tick())
    assert StopWorkers(C0, 0.0) in done


def test_a_verdict_that_was_found_is_not_forgotten_for_a_dying_agents_last_words() -> None:
    play = daemons.Play()
    play.state = "joining"
    play.wait(5)
    assert play.feed(events.Ended(daemons.FAILED)) == [KillChild("agent")]
    play.order(orders.Remember(Memory(C0)))
    assert play.feed(daemons.AGENT_GONE) == [WriteVerdict(daemons.FAILED), Leave(1, daemons.FAILED, "over")]


def test_enough_nodes_at_the_join_timeout_are_enough() -> None:
    talk = Talk()
    talk.register(0)
    talk.register(1)
    talk.wait(TIMEOUTS.join - 3)
    talk.register(2)
    assert talk.run(0, 0) in talk.wait(10)


def test_what_ends_the_node_first_decides_its_code() -> None:
    play = agents.running()
    play.lease = False
    play.feed(events.Disconnected("x"), events.Terminated("SIGTERM"))
    play.wait(TIMEOUTS.fence)
    last = play.feed(events.WorkersGone(C0, 9))[-1]
    assert isinstance(last, Leave) and last.code == 130

"""A daemon's machine that keeps a coordinator and an agent, scenario by scenario: events in, deeds out."""

import pytest
from tests.core.daemon_play import AGENT_GONE, Play
from tests.core.machines import BEAT, C0, FAILURE, TIMEOUTS

from ft_supervisor.core.daemon.child_watch import START_BOUND, STEADY_LIFE, ChildWatch, Life
from ft_supervisor.core.daemon.daemon import DONE_BOUND, MAX_CRASHES
from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.actions import (
    FinishFiles,
    KillChild,
    Leave,
    LookForVerdict,
    SpawnAgent,
    SpawnCoordinator,
)
from ft_supervisor.core.protocol.events import ChildExited, NoVerdict, Ordered, Tick
from ft_supervisor.core.protocol.model import Memory, Roster
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.worker_words import sentence
from ft_supervisor.core.transitions import InvalidState


def test_a_node_waits_for_its_first_coordinator_from_the_daemons_start() -> None:
    """The time waited is 0 once an agent had a coordinator. Otherwise a spare's next agent would leave at once."""
    play = Play(1, candidates=3)
    play.wait(5.0)
    play.feed(AGENT_GONE)
    assert play.machine.waited(play.now) == play.now >= 5.0
    play.feed(Ordered("agent", orders.Alive(AgentState.STANDBY)))
    play.feed(AGENT_GONE)
    play.feed(Ordered("agent", orders.Alive(AgentState.JOINING)))
    assert play.machine.waited(play.now) == 0.0


# -- who keeps a coordinator


def test_the_first_node_starts_a_coordinator_and_an_agent_the_others_an_agent() -> None:
    assert Play(0, candidates=3).began == [SpawnCoordinator(1, Memory()), SpawnAgent(1, Memory())]
    assert Play(1, candidates=3).began == [SpawnAgent(1, Memory())]


def test_the_other_candidates_start_theirs_when_the_first_has_been_met() -> None:
    play = Play(1, candidates=3)
    play.run()
    memory = Memory(0)
    play.order(orders.Remember(memory))
    assert play.wait(BEAT) == [SpawnCoordinator(1, memory)]
    assert play.wait(2) == []


def test_the_other_candidates_start_theirs_when_the_first_does_not_come() -> None:
    play = Play(2, candidates=3)
    play.run()
    assert play.wait(TIMEOUTS.node_lost - BEAT) == []
    assert play.wait(BEAT) == [SpawnCoordinator(1, Memory())]


def test_a_node_gets_a_coordinator_when_lost_members_make_it_a_candidate() -> None:
    play = Play(3, candidates=3)
    play.run()
    play.order(orders.Remember(Memory(0)))
    assert play.wait(2 * TIMEOUTS.node_lost) == []
    memory = Memory(0, Roster(0, 2, "0-1,3"))
    play.order(orders.Remember(memory))
    assert play.wait(BEAT) == [SpawnCoordinator(1, memory)]


def test_a_given_list_of_candidates_does_not_slide() -> None:
    assert Play(2, candidates=(2, 0)).began == [SpawnCoordinator(1, Memory()), SpawnAgent(1, Memory())]
    play = Play(1, candidates=(2, 0))
    play.run()
    play.order(orders.Remember(Memory(2, Roster(2, 1, "1,3"))))
    assert play.wait(2 * TIMEOUTS.node_lost) == []


def test_a_dead_coordinator_is_replaced_by_one_with_the_nodes_promise() -> None:
    play = Play(0)
    play.run()
    play.order(orders.Remember(Memory(4)))
    play.feed(ChildExited("coordinator", "killed"))
    assert play.wait(BEAT) == [SpawnCoordinator(2, Memory(4))]
    play.feed(ChildExited("coordinator", "killed"))
    assert play.wait(0.8 - BEAT) == []  # not at once, should it die again and again
    assert play.wait(2 * BEAT) == [SpawnCoordinator(3, Memory(4))]


def test_a_silent_coordinator_is_killed_and_replaced() -> None:
    play = Play(0)
    play.run()
    play.coordinator = False
    assert play.wait(TIMEOUTS.agent - BEAT) == []
    assert play.wait(BEAT) == [KillChild("coordinator")]
    play.feed(ChildExited("coordinator", "killed"))
    assert play.wait(BEAT) == [SpawnCoordinator(2, Memory())]


def test_a_starting_coordinator_has_longer() -> None:
    play = Play(0)
    play.coordinator = False
    play.state = AgentState.ACTIVE
    assert play.wait(START_BOUND - BEAT) == []
    assert play.wait(BEAT) == [KillChild("coordinator")]


def test_a_late_tick_is_no_silence_of_the_coordinator() -> None:
    play = Play(0)
    play.run()
    play.now += 10 * TIMEOUTS.agent
    assert play.feed(Tick()) == []
    play.coordinator = False
    assert play.wait(TIMEOUTS.agent + BEAT) == [KillChild("coordinator")]


# -- agents come and go


def test_a_crashed_agent_is_replaced_at_once_and_its_successor_gets_its_memory() -> None:
    play = Play()
    play.run()
    play.order(orders.Remember(Memory(0, newest=C0)), orders.Remember(Memory(0, newest=C0, failures=(FAILURE,))))
    assert play.feed(AGENT_GONE) == [SpawnAgent(2, Memory(0, newest=C0, failures=(FAILURE,)))]


def test_the_successor_of_an_agent_with_workers_tells_how_it_died() -> None:
    play = Play()
    play.run()
    play.order(orders.Remember(Memory(0, newest=C0)))
    (again,) = play.feed(AGENT_GONE)
    assert isinstance(again, SpawnAgent)
    (failure,) = again.memory.failures
    assert (sentence(failure, "n1"), failure.cause) == ("the agent of n1: killed by SIGKILL", Cause.EXIT)
    assert failure.time == 1.7e9 + play.now


def test_a_spares_agent_is_blamed_for_nothing() -> None:
    play = Play()
    play.order(orders.Alive(AgentState.STANDBY))
    assert play.feed(AGENT_GONE) == [SpawnAgent(2, Memory())]


def test_agents_that_crash_in_a_row_are_given_more_and_more_time_and_then_up() -> None:
    play = Play()
    play.run()
    assert play.feed(AGENT_GONE) == [SpawnAgent(2, Memory())]
    pauses = []
    for crash in range(2, MAX_CRASHES):
        since = play.now
        assert play.feed(AGENT_GONE) == []
        while not (spawned := play.feed(Tick())):
            play.now += 0.1
        assert spawned == [SpawnAgent(crash + 1, Memory())]
        pauses.append(play.now - since)
    assert pauses == pytest.approx([0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5], abs=0.15)
    reason = f"{MAX_CRASHES} agents in a row ended at once, the last: killed by SIGKILL"
    assert play.feed(AGENT_GONE) == [LookForVerdict()]
    assert play.feed(NoVerdict()) == [FinishFiles(), Leave(75, None, reason)]


def test_an_agent_that_lived_for_long_has_not_crashed_in_a_row() -> None:
    play = Play()
    play.feed(AGENT_GONE)
    play.run()
    play.wait(STEADY_LIFE)
    assert play.feed(AGENT_GONE) == [SpawnAgent(3, Memory())]


def test_a_silent_agent_is_killed_and_replaced() -> None:
    play = Play()
    play.run()
    play.order(orders.Remember(Memory(0, newest=C0)))
    play.state = None
    assert play.wait(TIMEOUTS.agent - BEAT) == []
    assert play.wait(BEAT) == [KillChild("agent")]
    silent_at = 1.7e9 + play.now
    assert play.wait(DONE_BOUND - BEAT) == []
    assert play.wait(BEAT) == [KillChild("agent")]  # once more, should the first have been in vain
    (again,) = play.feed(AGENT_GONE)
    assert isinstance(again, SpawnAgent) and again.incarnation == 2
    (failure,) = again.memory.failures
    assert sentence(failure, "n1") == "the agent of n1 hangs: not heard by its daemon for 3.0 s"
    assert failure.time == silent_at


def test_a_starting_agent_has_longer() -> None:
    play = Play()
    assert KillChild("agent") not in play.wait(START_BOUND - BEAT)
    assert KillChild("agent") in play.wait(BEAT)


def test_a_late_tick_is_no_silence_of_the_agent() -> None:
    play = Play()
    play.run()
    play.now += 10 * TIMEOUTS.agent
    assert play.feed(Tick()) == []
    play.state = None
    assert play.wait(TIMEOUTS.agent + BEAT) == [KillChild("agent")]


def test_the_fence_is_guarded_where_the_agent_stands_still() -> None:
    play = Play()
    play.fence_in = 1.0
    play.run()
    play.state = None
    assert play.wait(1.0) == []
    assert play.wait(BEAT) == [KillChild("agent")]  # one heartbeat after the agent should have done it itself


def test_the_fence_counts_even_while_the_daemon_stood_still_itself() -> None:
    play = Play()
    play.fence_in = TIMEOUTS.fence
    play.run()
    play.now += TIMEOUTS.fence + 2 * BEAT
    assert play.feed(Tick()) == [KillChild("agent")]


def test_a_new_agent_is_not_bound_by_the_fence_of_the_former_one() -> None:
    play = Play()
    play.fence_in = 1.0
    play.run()
    play.feed(AGENT_GONE)
    play.state = None
    assert KillChild("agent") not in play.wait(3)


# -- states


def test_to_start_a_child_beside_another_one_is_a_bug() -> None:
    watch = ChildWatch(1.0, (0.0, 0.0))
    assert watch.spawn(0.0)
    with pytest.raises(InvalidState, match="from starting to starting"):
        watch._become(Life.STARTING)

"""A daemon's machine that ends: with its agent, by a signal, and with a verdict that it finds in the file."""

import pytest
from tests.core.daemon_play import (
    AGENT_GONE,
    CANCELLED,
    COORDINATOR_GONE,
    FAILED,
    LEFT_FAILED,
    NO_LEASE,
    SUCCEEDED,
    SUCCESS,
    Play,
)
from tests.core.machines import BEAT, C0, TIMEOUTS, deeds, lines

from ft_supervisor.core.coordinator.interruptions import ASK_BOUND
from ft_supervisor.core.daemon.daemon import DONE_BOUND, State
from ft_supervisor.core.daemon.leaving import LATE_BOUND
from ft_supervisor.core.daemon.verdict_search import FIRST_PAUSE, LOOK_PAUSE
from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.actions import CopyVerdict, FinishFiles, KillChild, Leave, LookForVerdict, Tell
from ft_supervisor.core.protocol.events import ChildExited, NoVerdict, Signalled, Tick, VerdictFileFound
from ft_supervisor.core.protocol.model import KILL_BOUND, Memory
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.transitions import InvalidState

# -- the end


def test_the_node_leaves_with_its_agents_verdict() -> None:
    play = Play()
    play.run()
    assert play.order(orders.Done(0, SUCCESS, "over")) == []
    assert play.feed(ChildExited("agent", "exit code 0")) == [
        CopyVerdict(SUCCESS),
        *SUCCEEDED,
    ]


def test_an_agent_that_is_done_but_stays_is_killed() -> None:
    play = Play()
    play.run()
    play.order(orders.Done(75, None, "no lease"))
    play.state = None
    assert play.wait(DONE_BOUND - BEAT) == []
    assert play.wait(BEAT) == [KillChild("agent")]
    assert play.feed(AGENT_GONE) == [LookForVerdict()]
    assert play.feed(NoVerdict()) == [FinishFiles(), NO_LEASE]


def test_an_agent_that_dies_on_its_way_out_is_not_replaced() -> None:
    play = Play()
    play.run()
    play.order(orders.Remember(Memory(0, newest=C0, verdict=FAILED)))
    assert play.feed(AGENT_GONE) == [CopyVerdict(FAILED), *LEFT_FAILED]


def test_the_first_node_leaves_after_its_coordinator() -> None:
    play = Play(0)
    play.run()
    play.order(orders.VerdictDecided(SUCCESS), child="coordinator")
    play.order(orders.Done(0, SUCCESS, "over"))
    assert play.feed(ChildExited("agent", "exit code 0")) == [CopyVerdict(SUCCESS)]
    play.order(orders.Done(0, SUCCESS, "over"), child="coordinator")
    assert play.feed(COORDINATOR_GONE) == [*SUCCEEDED]


def test_a_coordinator_that_closes_the_job_and_stays_is_killed() -> None:
    play = Play(0)
    play.run()
    play.order(orders.VerdictDecided(SUCCESS), child="coordinator")
    play.order(orders.Done(0, SUCCESS, "over"))
    play.feed(ChildExited("agent", "exit code 0"))
    play.state = None
    bound = play.machine.job.longest_grace + TIMEOUTS.close_grace + KILL_BOUND + 5.0
    assert play.wait(bound - BEAT) == []
    assert play.wait(BEAT) == [KillChild("coordinator")]
    assert play.feed(ChildExited("coordinator", "killed")) == [
        CopyVerdict(SUCCESS, shared=True),
        *SUCCEEDED,
    ]


def test_a_coordinator_without_a_lease_is_killed_when_its_node_leaves() -> None:
    play = Play(0)
    play.run()
    play.order(orders.Done(75, None, "no lease"))
    assert play.feed(ChildExited("agent", "exit code 75")) == [KillChild("coordinator")]
    assert play.feed(ChildExited("coordinator", "killed")) == [LookForVerdict()]
    assert play.feed(NoVerdict()) == [FinishFiles(), NO_LEASE]


def test_a_coordinator_that_dies_with_a_claimed_verdict_has_its_file_written() -> None:
    play = Play(0)
    play.run()
    play.order(orders.VerdictDecided(FAILED), child="coordinator")
    assert play.feed(ChildExited("coordinator", "killed")) == [CopyVerdict(FAILED, shared=True)]
    play.order(orders.Done(1, FAILED, "over"))
    assert play.feed(ChildExited("agent", "exit code 1")) == [
        CopyVerdict(FAILED),
        FinishFiles(),
        Leave(1, FAILED, "over"),
    ]


def test_a_coordinator_that_dies_after_its_verdict_is_not_replaced() -> None:
    play = Play(0)
    play.run()
    play.order(orders.VerdictDecided(FAILED), child="coordinator")
    play.feed(ChildExited("coordinator", "killed"))
    assert play.wait(30) == []


def test_a_node_that_ends_takes_its_candidate_along() -> None:
    """The coordinator of another node is in charge, or takes charge later."""
    play = Play(0)
    play.run()
    play.order(orders.Done(0, SUCCESS, "over"))
    assert play.feed(ChildExited("agent", "exit code 0")) == [CopyVerdict(SUCCESS), KillChild("coordinator")]
    assert play.feed(ChildExited("coordinator", "killed")) == [*SUCCEEDED]


# -- signals


def test_a_signal_is_passed_to_the_agent_once() -> None:
    play = Play()
    play.run()
    assert play.feed(Signalled("SIGTERM"), Signalled("SIGTERM")) == [Tell(orders.Terminate("SIGTERM"))]
    assert play.feed(AGENT_GONE) == [FinishFiles(), CANCELLED]  # and not replaced


def test_a_signal_while_no_agent_is_there() -> None:
    play = Play()
    play.feed(AGENT_GONE, AGENT_GONE)
    assert play.feed(Signalled("SIGTERM")) == [FinishFiles(), Leave(130, None, "told to end by SIGTERM")]


def test_an_agent_that_does_not_heed_the_signal_is_killed_within_a_bound() -> None:
    play = Play()
    play.run()
    play.feed(Signalled("SIGTERM"))
    patience = play.machine.job.longest_grace + 2 * TIMEOUTS.coordinator + ASK_BOUND + KILL_BOUND + 10.0
    assert play.wait(patience - BEAT) == []
    assert play.wait(BEAT) == [KillChild("agent")]


@pytest.mark.parametrize(
    ("signals", "kills"),
    [
        ([("SIGINT", 0.0), ("SIGINT", 2.0)], True),
        ([("SIGTERM", 0.0), ("SIGINT", 2.0)], True),
        ([("SIGINT", 0.0), ("SIGINT", 0.2)], False),  # a terminal and srun both sent it
        ([("SIGINT", 0.0), ("SIGTERM", 2.0)], False),
    ],
)
def test_a_second_sigint_is_a_person_in_a_hurry(signals: list[tuple[str, float]], kills: bool) -> None:
    play = Play(0)
    play.run()
    for name, after in signals:
        play.now += after
        play.feed(Signalled(name))
    assert play.wait(BEAT) == ([KillChild("agent"), KillChild("coordinator")] if kills else [])


# -- the verdict's file


def test_a_node_without_a_coordinator_looks_for_the_verdict() -> None:
    play = Play()
    play.state = AgentState.JOINING
    assert play.wait(LOOK_PAUSE) == [LookForVerdict()]
    assert play.wait(LOOK_PAUSE) == [LookForVerdict()]
    assert play.feed(VerdictFileFound(SUCCESS), VerdictFileFound(FAILED)) == [KillChild("agent")]
    assert play.feed(AGENT_GONE) == [CopyVerdict(SUCCESS), *SUCCEEDED]


def test_where_the_job_may_be_over_the_verdict_is_looked_for_at_once_and_soon_again() -> None:
    play = Play()
    play.state = AgentState.STANDBY
    assert play.wait(LOOK_PAUSE) == []
    assert play.order(orders.Alive(AgentState.STANDBY, look=True)) == []  # it has a coordinator
    assert play.order(orders.Alive(AgentState.JOINING, look=True)) == [LookForVerdict()]
    looked, began = [], play.now
    while play.now < began + 4 * LOOK_PAUSE:
        play.now += BEAT
        if play.order(orders.Alive(AgentState.JOINING, look=True)) + play.feed(Tick()):
            looked.append(play.now - began)
    pauses = [after - before for before, after in zip([0.0, *looked], looked, strict=False)]
    assert pauses == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE, LOOK_PAUSE, LOOK_PAUSE]
    assert play.order(orders.Alive(AgentState.STANDBY, look=True)) == []
    assert play.order(orders.Alive(AgentState.JOINING, look=True)) == [LookForVerdict()]  # another coordinator was lost


def test_a_verdict_found_while_no_agent_is_there() -> None:
    play = Play()
    play.feed(AGENT_GONE, AGENT_GONE)
    assert play.feed(VerdictFileFound(FAILED)) == [CopyVerdict(FAILED), *LEFT_FAILED]


def test_a_node_with_a_coordinator_looks_for_no_verdict() -> None:
    play = Play()
    play.run()
    assert play.wait(3 * LOOK_PAUSE) == []


def test_a_verdict_found_too_late_changes_nothing() -> None:
    play = Play()
    play.run()
    play.order(orders.Done(0, SUCCESS, "over"))
    assert play.feed(VerdictFileFound(FAILED)) == []
    assert play.feed(ChildExited("agent", "exit code 0")) == [
        CopyVerdict(SUCCESS),
        *SUCCEEDED,
    ]


# -- the last look


def given_up() -> Play:
    """Return a daemon whose agent has found no coordinator, and that takes its last look for the verdict's file."""
    play = Play()
    play.order(orders.Done(75, None, "no coordinator"))
    assert play.feed(AGENT_GONE) == [LookForVerdict()]
    return play


def test_a_late_comer_leaves_with_the_verdict_of_the_file() -> None:
    reason = "the run's verdict is there already: over"
    assert given_up().feed(VerdictFileFound(FAILED)) == [FinishFiles(), Leave(1, FAILED, reason)]


def test_a_late_comer_leaves_with_75_where_no_file_is() -> None:
    assert given_up().feed(NoVerdict()) == [FinishFiles(), Leave(75, None, "no coordinator")]


def test_a_late_comer_does_not_wait_for_a_file_system_that_hangs() -> None:
    play = given_up()
    assert play.machine.due == play.now + LATE_BOUND
    assert play.feed(Tick(), Signalled("SIGTERM")) == []
    play.now += LATE_BOUND
    actions = play.machine.handle(Tick(), play.now)
    assert lines(actions) == ["file_failed", "leaving"]
    assert deeds(actions) == [FinishFiles(), Leave(75, None, "no coordinator")]


def test_a_cancelled_node_looks_for_no_file() -> None:
    play = Play()
    play.order(orders.Done(130, None, "cancelled"))
    assert play.feed(AGENT_GONE) == [FinishFiles(), Leave(130, None, "cancelled")]


def test_a_daemon_that_has_left_begins_nothing() -> None:
    play = Play()
    play.order(orders.Done(0, SUCCESS, "over"))
    play.feed(AGENT_GONE)
    assert play.machine.state is State.LEAVING
    with pytest.raises(InvalidState, match="from leaving to serving"):
        play.machine._become(State.SERVING)

"""Tests the daemon's machine, scenario by scenario: events in, actions out, compared as they are."""

import pytest
from tests.core.machines import BEAT, C0, FAILURE, TIMEOUTS, deeds, job, lines, node

from ft_supervisor.core.coordinator.interruptions import ASK_BOUND
from ft_supervisor.core.daemon.child_watch import START_BOUND, STEADY_LIFE, ChildWatch, Life
from ft_supervisor.core.daemon.daemon import DONE_BOUND, MAX_CRASHES, DaemonMachine, State
from ft_supervisor.core.daemon.leaving import LATE_BOUND
from ft_supervisor.core.daemon.verdict_search import FIRST_PAUSE, LOOK_PAUSE
from ft_supervisor.core.protocol import events, orders
from ft_supervisor.core.protocol.actions import (
    CopyVerdict,
    FinishFiles,
    KillChild,
    Leave,
    LookForVerdict,
    SpawnAgent,
    SpawnCoordinator,
    Tell,
)
from ft_supervisor.core.protocol.events import ChildExited, NoVerdict, Ordered, Signalled, Tick, VerdictFileFound
from ft_supervisor.core.protocol.model import KILL_BOUND, Memory, Outcome, Roster, Verdict
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.transitions import InvalidState

SUCCESS = Verdict(Outcome.SUCCESS, "over")
FAILED = Verdict(Outcome.FAILED, "over")
CANCELLED = Leave(130, None, "told to end by a signal")
SUCCEEDED = (FinishFiles(), Leave(0, SUCCESS, "over"))
LEFT_FAILED = (FinishFiles(), Leave(1, FAILED, "over"))
NO_LEASE = Leave(75, None, "no lease")


class Play:
    """A daemon, its clock, and an agent that sends Alive while `state` is set."""

    def __init__(self, infra_rank: int = 1, candidates: int | tuple[int, ...] = 1) -> None:
        self.now = 0.0
        self.coordinator = True
        """Whether the coordinator sends Alive once it has been started."""
        self.machine = DaemonMachine(job(candidates=candidates), node(infra_rank), 0.0, 1.7e9)
        self.state: AgentState | None = None
        self.fence_in: float | None = None
        self.began = deeds(self.machine.start(0.0))

    def feed(self, *what: events.DaemonEvent) -> list[object]:
        """Let these events happen; return the actions."""
        answers: list[object] = []
        for event in what:
            answers += deeds(self.machine.handle(event, self.now))
        return answers

    def order(self, *what: orders.Order, child: str = "agent") -> list[object]:
        """Let a child send these orders; return the actions."""
        return self.feed(*(Ordered(child, order) for order in what))

    def wait(self, seconds: float) -> list[object]:
        """Let `seconds` of ticks pass, one each heartbeat; return the actions."""
        answers: list[object] = []
        until = self.now + seconds
        while self.now < until:
            self.now += BEAT
            if self.state is not None:
                answers += self.order(orders.Alive(self.state, fence_in=self.fence_in))
            if self.coordinator and self.machine._coordinator.lives:
                answers += self.order(orders.Alive("leading"), child="coordinator")
            answers += self.feed(Tick())
        return answers

    def run(self) -> None:
        """Let the agent run workers."""
        self.state = AgentState.ACTIVE
        assert self.wait(BEAT) == []


AGENT_GONE = ChildExited("agent", "killed by SIGKILL")
COORDINATOR_GONE = ChildExited("coordinator", "exit code 0")


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
    play.state = None
    assert play.wait(TIMEOUTS.agent - BEAT) == []
    assert play.wait(BEAT) == [KillChild("agent")]
    silent_at = 1.7e9 + play.now
    assert play.wait(DONE_BOUND - BEAT) == []
    assert play.wait(BEAT) == [KillChild("agent")]  # once more, should the first have been in vain
    (again,) = play.feed(AGENT_GONE)
    assert isinstance(again, SpawnAgent) and again.incarnation == 2
    (failure,) = again.memory.failures
    assert str(failure) == "agent of node 1: hangs (not heard by its daemon for 3.0 s)"
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


# -- states


def test_to_start_a_child_beside_another_one_is_a_bug() -> None:
    watch = ChildWatch(1.0, (0.0, 0.0))
    assert watch.spawn(0.0)
    with pytest.raises(InvalidState, match="from starting to starting"):
        watch._become(Life.STARTING)


def test_a_daemon_that_has_left_begins_nothing() -> None:
    play = Play()
    play.order(orders.Done(0, SUCCESS, "over"))
    play.feed(AGENT_GONE)
    assert play.machine.state is State.LEAVING
    with pytest.raises(InvalidState, match="from leaving to serving"):
        play.machine._become(State.SERVING)

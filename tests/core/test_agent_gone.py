"""The end of an agent whose daemon lives: what the daemon says, and what the coordinator does when it hears it."""

from dataclasses import replace

import pytest
from tests.core.daemon_play import AGENT_GONE, Play
from tests.core.machines import BEAT, C0, C1, FAILURE, RAN, SUCCESS, TIMEOUTS, Talk, failed, stop, stopped, succeeded

from ft_supervisor.core.coordinator.cycle_step import Phase
from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.actions import Push, SpawnAgent
from ft_supervisor.core.protocol.model import AGENT_RANK, Failure
from ft_supervisor.core.protocol.orders import AgentState

STORE = orders.Reached("10.0.0.1", 29400)
KILLED = Failure(1, AGENT_RANK, message="killed by SIGKILL")


def gone(infra_rank: int, incarnation: int = 1, **fields: object) -> messages.AgentGone:
    """Return what the daemon says of an agent that ran C0 and was killed."""
    failures = (replace(KILLED, infra_rank=infra_rank),)
    said = messages.AgentGone(0, infra_rank, incarnation, C0, failures)
    return replace(said, **fields)  # type: ignore[arg-type]


def reason(talk: Talk) -> str:
    """Return why the cycle could not go on."""
    trouble = talk.machine.state.cycles._failure.trouble
    assert trouble is not None
    return trouble.reason


def test_the_daemon_says_that_its_agent_is_gone_until_the_next_one_is_there() -> None:
    play = Play(1)
    play.run()
    play.order(STORE, orders.Remember(RAN))
    play.wait(BEAT)
    (push, spawn) = play.feed(AGENT_GONE)
    assert isinstance(push, Push) and isinstance(spawn, SpawnAgent)
    assert (push.host, push.port) == (STORE.host, STORE.port)
    failure = replace(KILLED, time=push.message.failures[0].time)
    assert push.message == messages.AgentGone(0, 1, 1, C0, (failure,))
    play.state = None
    assert play.wait(3 * BEAT) == [push] * 3
    play.state = AgentState.JOINING
    assert play.wait(3 * BEAT) == []


def test_an_agent_that_dies_before_it_reaches_a_store_has_run_nothing() -> None:
    """The coordinator knows only its predecessor."""
    play = Play(1)
    play.run()
    play.order(STORE, orders.Remember(RAN))
    (first, _) = play.feed(AGENT_GONE)
    play.state = None
    assert play.wait(BEAT) == [first]
    assert play.feed(AGENT_GONE) == [first]


@pytest.mark.parametrize("orders_", [(), (STORE,), (orders.Remember(RAN),)])
def test_without_a_coordinator_there_is_nobody_to_tell(orders_: tuple[orders.Order, ...]) -> None:
    play = Play(1)
    play.run()
    play.order(*orders_)
    assert not [action for action in play.feed(AGENT_GONE) if isinstance(action, Push)]


def test_success_and_progress_of_the_newest_cycle_are_told() -> None:
    play = Play(1)
    play.state = AgentState.SUCCEEDED
    play.order(STORE, orders.Remember(replace(RAN, succeeded=C0, progressed=C0)))
    play.wait(BEAT)
    (push, _) = play.feed(AGENT_GONE)
    assert isinstance(push, Push)
    assert push.message == messages.AgentGone(0, 1, 1, C0, (), succeeded=True, progressed=True)


def test_the_spare_takes_its_place_without_waiting() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    assert talk.hear(gone(1)) == [stop(0), stop(1), stop(2)]
    talk.hear(stopped(0))
    assert talk.hear(stopped(2)) == [
        talk.run(0, 0, C1, port=200),
        talk.run(3, 1, C1, port=200),
        talk.run(2, 2, C1, port=200),
        talk.standby(1, C1),  # for a queue that has no reader any more
    ]
    assert reason(talk) == "the agent of n1: killed by SIGKILL"


def test_it_is_not_lost_while_its_daemon_says_so() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    for _ in range(30):
        talk.hear(gone(1))
        talk.wait(BEAT)
    assert "node_lost" not in talk.logged
    talk.wait(TIMEOUTS.node_lost)
    assert "node_lost" in talk.logged


def test_without_a_spare_the_next_agent_is_waited_for() -> None:
    talk = Talk(nodes=3)
    talk.begin()
    talk.silent = {1}
    talk.hear(gone(1))
    talk.hear(stopped(0))
    assert talk.hear(stopped(2)) == []
    for _ in range(30):
        assert talk.hear(gone(1)) == [] and talk.wait(BEAT) == []
    assert "too_few_nodes" not in talk.logged
    talk.silent = set()
    again = talk.register(1, 2, memory=replace(RAN, failures=(KILLED,)))
    assert again[-3:] == [
        talk.run(0, 0, C1, port=200),
        talk.run(1, 1, C1, incarnation=2, port=200),
        talk.run(2, 2, C1, port=200),
    ]


def test_old_messages_of_the_dead_agent_change_nothing() -> None:
    talk = Talk(nodes=3)
    talk.begin()
    talk.silent = {1}
    talk.hear(gone(1))
    assert talk.register(1, running=C0, memory=RAN) == []
    assert not talk.machine.members[1].running
    talk.hear(stopped(0))
    assert talk.hear(stopped(2)) == []
    assert talk.machine.members[1].agentless


def test_what_is_said_of_a_former_agent_changes_nothing() -> None:
    talk = Talk()
    talk.begin()
    talk.register(1, 2, running=C0, memory=RAN)
    assert talk.hear(gone(1)) == []
    assert talk.machine.members[1].running
    assert talk.hear(gone(1, 2, term=1)) == []
    assert talk.machine.members[1].running


def test_its_own_failure_counts_though_its_peers_were_faster() -> None:
    talk = Talk()
    talk.begin()
    talk.silent = {1}
    talk.hear(failed(0))
    talk.hear(gone(1))
    assert talk.machine.state.cycles._failure._failed == [0, 1]


def test_a_failure_of_its_workers_that_was_told_is_not_counted_twice() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(failed(1))
    talk.hear(gone(1, failures=(FAILURE,)))
    assert talk.machine.state.cycles._failure._failed == [1]


def test_success_that_was_not_told_before_counts() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(succeeded(0))
    talk.hear(succeeded(2))
    assert talk.hear(gone(1, failures=(), succeeded=True)) == talk.propose(SUCCESS, 0, 1, 2, 3)


def test_a_run_that_died_with_its_agent_ends_the_cycle_uncharged() -> None:
    talk = Talk()
    talk.begin()
    assert talk.hear(gone(1, cycle=None, failures=())) == [stop(0), stop(1), stop(2)]
    assert reason(talk) == "n1: it never ran cycle 0.0"


def test_a_dead_standby_is_not_promoted() -> None:
    talk = Talk(nodes=4)
    talk.begin()
    talk.hear(gone(3, cycle=None, failures=()))
    talk.silent = {3}
    talk.hear(failed(1))
    for infra_rank in (0, 1):
        talk.hear(stopped(infra_rank))
    began = talk.hear(stopped(2))
    assert talk.run(1, 1, C1, port=200) in began


def test_before_the_first_cycle_it_is_waited_for_again() -> None:
    talk = Talk()
    for infra_rank in range(3):
        talk.register(infra_rank)
    talk.hear(gone(1, cycle=None, failures=()))
    assert not [action for action in talk.register(3) if "Run" in repr(action)]
    began = talk.register(1, 2)
    assert talk.run(1, 1, incarnation=2) in began


@pytest.mark.parametrize("failures", [(), (replace(KILLED, infra_rank=3),)])
def test_a_spare_that_claims_to_have_run_the_cycle_changes_nothing(failures: tuple[Failure, ...]) -> None:
    talk = Talk()
    talk.begin()
    assert talk.hear(gone(3, failures=failures)) == []
    assert talk.machine.state.cycles.phase is Phase.RUNNING

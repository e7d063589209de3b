"""A coordinator's terms: when it steps down, which votes it needs, the age of its leases, and messages that are old."""

from __future__ import annotations

import pytest
from tests.core.machines import (
    BEAT,
    C0,
    SUCCESS,
    TIMEOUTS,
    Talk,
    failed,
    mailed,
    node,
    stop,
    stopped,
    succeeded,
    verdict_kept,
)
from tests.core.takeover import Takeover, ran

from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction, Fact, Mail
from ft_supervisor.core.protocol.coordinator_facts import NodeLost
from ft_supervisor.core.protocol.events import Received
from ft_supervisor.core.protocol.messages import Continue, Prepare, Run, Standby
from ft_supervisor.core.protocol.model import Memory, Roster

# -- who is in charge no more, or never was


def test_a_coordinator_that_gets_a_higher_promise_steps_down_and_asks_anew_above_it() -> None:
    talk = Takeover()
    talk.take(0, 1, 2)
    done = talk.register(3, memory=Memory(6))
    assert talk.machine.term is None
    assert set(mailed(done, Prepare).values()) == {Prepare(11)}
    assert talk.beat() == []
    assert talk.pulse.term != 1
    assert talk.pulse.lease == 0
    talk.promise(0, 1, 2)
    assert talk.machine.term == 11


def test_a_candidate_that_gets_a_higher_promise_asks_anew_above_it() -> None:
    talk = Takeover()
    talk.come(0, 1, 2)
    done = talk.register(3, memory=Memory(8))
    assert set(mailed(done, Prepare).values()) == {Prepare(11)}
    talk.register(0, memory=Memory(1))  # promised for the former question
    assert talk.machine.term is None


def test_a_coordinator_that_stood_still_for_longer_than_the_fence_steps_down() -> None:
    talk = Takeover()
    talk.take(0, 1, 2, 3, 4)
    talk.now += TIMEOUTS.fence
    talk.wait(BEAT)
    assert talk.machine.term is None
    assert "stepped_down" in talk.logged


def test_a_coordinator_that_stood_still_for_less_stays_in_charge() -> None:
    talk = Takeover()
    talk.take(0, 1, 2, 3, 4)
    talk.now += TIMEOUTS.fence - BEAT
    talk.wait(BEAT)
    assert talk.machine.term == 1


def test_promises_that_do_not_come_are_asked_for_again_in_a_higher_term() -> None:
    talk = Takeover()
    talk.come(0, 1, 2)
    talk.promise(0)
    asked = mailed(talk.wait(2 * TIMEOUTS.coordinator + BEAT), Prepare)
    assert set(asked) == {0, 1, 2}
    assert set(asked.values()) == {Prepare(6)}
    assert talk.promise(1, 2) == []  # n0's was for the former question
    assert talk.machine.term is None
    talk.promise(0)
    assert talk.machine.term == 6


def test_the_first_candidate_of_a_fresh_job_needs_no_vote() -> None:
    assert Talk().machine.term == 0


@pytest.mark.parametrize(
    ("infra_rank", "incarnation", "promise"), [(0, 2, -1), (0, 1, 0), (0, 1, 5), (1, 1, -1), (3, 1, -1)]
)
def test_every_other_coordinator_needs_a_vote(infra_rank: int, incarnation: int, promise: int) -> None:
    """A second incarnation does not know the actions of the first one."""
    talk = Talk(infra_rank=infra_rank, incarnation=incarnation, memory=Memory(promise))
    assert talk.machine.term is None
    for rank in range(3):
        done = talk.register(rank, memory=Memory(0))
    assert talk.machine.term is None
    terms = {message.term for message in mailed(done, Prepare).values()}
    assert len(terms) == 1
    assert min(terms) > max(0, promise)
    assert min(terms) % 4 == infra_rank


def test_a_fresh_first_candidate_does_not_go_on_when_a_node_has_promised_another_term() -> None:
    talk = Talk()
    talk.register(0)
    talk.register(1)
    talk.register(2)
    done = talk.register(3, memory=Memory(1))
    assert mailed(done, Run) == {}
    assert talk.machine.term is None
    assert set(mailed(done, Prepare).values()) == {Prepare(4)}


def test_without_a_majority_nothing_is_decided() -> None:
    talk = Takeover()
    talk.take(0, 1, 2, 3, 4)
    talk.silent = {0, 2, 3, 4}
    talk.wait(2 * TIMEOUTS.coordinator)
    assert talk.wait(3 * TIMEOUTS.node_lost) == []
    assert "majority_lost" in talk.logged
    assert "node_lost" not in talk.logged
    assert talk.hear(stopped(1, term=1)) == [stop(rank, term=1) for rank in range(3)]
    assert talk.wait(TIMEOUTS.node_lost) == []


def test_the_lease_stands_still_without_a_majority() -> None:
    talk = Takeover()
    talk.take(0, 1, 2, 3, 4)
    talk.wait(2)
    assert talk.pulse.lease >= talk.pulse.round - 2
    lease = talk.pulse.lease
    talk.silent = {0, 2, 3, 4}
    talk.wait(2)
    assert talk.pulse.lease == lease


# -- the age of leases


def age(machine: CoordinatorMachine, message: messages.ToCoordinator, now: float) -> float | None:
    """Return the lease's age in the first message that answers."""
    for action in machine.handle(Received(message), now):
        if isinstance(action, Mail) and isinstance(action.message, Run | Standby | Continue):
            return action.message.age
    raise AssertionError("no answer")


def test_a_lease_counts_from_when_the_promises_were_asked_for() -> None:
    talk = Takeover()
    talk.now = 3.0
    talk.beat()
    talk.come(0, 1, 2)  # in round 2, of second 3
    talk.now = 3.4
    talk.promise(0, 1)
    register = messages.Register(node(2), 1, 1, 2, 102, C0, ran(1), 2)
    assert age(talk.machine, register, 3.5) == pytest.approx(0.5)


def test_a_coordinator_without_a_majority_gives_no_lease() -> None:
    talk = Talk()
    register = messages.Register(node(3), 1, 1, talk.pulse.round, 103, None, Memory(0))
    assert age(talk.machine, register, 1.0) is None


# -- what is old, or comes twice


def test_a_register_that_comes_twice_or_late_changes_nothing() -> None:
    talk = Takeover()
    talk.take(0, 1, 2, 3, 4)
    talk.hear(failed(2, term=1))
    late = messages.Register(node(2), 1, 1, 1, 102, C0, ran(), 1)
    again = messages.Register(node(2), 1, 1, 1, 102, C0, ran(1), 2)
    for message in (late, again, late):
        assert talk.hear(message) == []
    assert talk.machine.term == 1
    assert talk.machine.state.phase == "stopping"


def test_the_same_register_does_not_promise_for_two() -> None:
    talk = Takeover()
    talk.come(0, 1, 2)
    promise = messages.Register(node(0), 1, 1, 1, 100, C0, ran(1), 2)
    for _ in range(5):
        assert talk.hear(promise) == []
    assert talk.machine.term is None


def test_messages_of_a_former_term_are_ignored() -> None:
    talk = Takeover()
    talk.take(0, 1, 2, 3, 4)
    for message in (failed(0), succeeded(0), stopped(0), messages.ToldToEnd(0, 0, 1, "SIGTERM"), verdict_kept(0)):
        assert talk.hear(message) == []
    assert talk.hear(messages.Goodbye(0, 0, 1, SUCCESS)) == []
    assert talk.machine.state.phase == "running"
    assert talk.machine.verdict is None


@pytest.mark.parametrize(
    "memory", [ran(group="0-1,9"), Memory(0, Roster(0, 1, "0-9")), Memory(0, Roster(0, 1, "0-1", "0-9"))]
)
def test_a_register_that_names_nodes_that_the_job_does_not_have_is_none(memory: Memory) -> None:
    talk = Talk()
    assert talk.register(0, memory=memory) == []
    assert "message_dropped" in talk.logged


# -- in charge again


class Told(Takeover):
    """It keeps the facts that the coordinator has announced."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        super().__init__()

    def _answer(self, actions: list[CoordinatorAction]) -> list[object]:
        self.facts += [action.fact for action in actions if isinstance(action, Announce)]
        return super()._answer(actions)


def test_in_its_second_time_in_charge_a_node_is_not_lost_since_the_first() -> None:
    """A node trains under another coordinator, and never calls this one again: that it has been heard long ago says
    nothing. It is lost when it has been silent for node_lost since this coordinator is in charge again."""
    talk = Told()
    talk.take(0, 1, 2, 3, 4)
    talk.register(3, memory=Memory(6))
    led = talk.machine.term
    assert led is None
    talk.silent = {4}
    talk.wait(300)
    talk.promise(0, 1, 2, 3)
    assert talk.machine.term is not None
    again = talk.now
    talk.wait(TIMEOUTS.node_lost - 2 * BEAT)
    assert not [fact for fact in talk.facts if isinstance(fact, NodeLost)]
    talk.wait(4 * BEAT)
    (lost,) = [fact for fact in talk.facts if isinstance(fact, NodeLost)]
    assert (lost.infra_rank, lost.heard) == (4, again)

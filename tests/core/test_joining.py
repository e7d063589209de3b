"""Which nodes a job waits for before its first cycle, and when that is announced."""

from dataclasses import replace

from tests.core.machines import BEAT, C0, TIMEOUTS, Talk, job, node

from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol.actions import Announce
from ft_supervisor.core.protocol.coordinator_facts import NodesMissing
from ft_supervisor.core.protocol.events import Tick
from ft_supervisor.core.protocol.model import Memory


class Waiting(Talk):
    """Keeps each NodesMissing with its time."""

    def __init__(self, **how: object) -> None:
        self.told: list[tuple[float, NodesMissing]] = []
        super().__init__(**how)  # type: ignore[arg-type]

    def _answer(self, actions: list) -> list[object]:  # type: ignore[type-arg]
        facts = [action.fact for action in actions if isinstance(action, Announce)]
        self.told += [(self.now, fact) for fact in facts if isinstance(fact, NodesMissing)]
        return super()._answer(actions)


def test_the_missing_nodes_are_announced_after_10_s_and_30_s_and_each_minute() -> None:
    talk = Waiting(a_job=replace(job(), timeouts=replace(TIMEOUTS, join=200.0)))
    for infra_rank in (0, 3):
        talk.register(infra_rank)
    talk.wait(199)
    assert [(at, fact.nodes, fact.enough, fact.left) for at, fact in talk.told] == [
        (at, "1-2", False, 200.0 - at) for at in (10.0, 30.0, 60.0, 120.0, 180.0)
    ]


def test_they_are_announced_also_without_a_majority() -> None:
    talk = Waiting()
    talk.register(0)
    talk.wait(10 + BEAT)
    assert [fact.nodes for _, fact in talk.told] == ["1-3"]


def test_a_job_that_has_enough_nodes_says_when_it_begins() -> None:
    late = replace(job(), timeouts=replace(TIMEOUTS, node_lost=20.0, join=100.0))
    talk = Waiting(a_job=late)
    talk.wait(5)
    for infra_rank in (0, 1, 2):
        talk.register(infra_rank)
    talk.wait(6)
    assert [(fact.nodes, fact.enough) for _, fact in talk.told] == [("3", True)]
    assert 13.0 <= talk.told[0][1].left <= 16.0


def test_nothing_is_announced_once_the_job_has_begun() -> None:
    talk = Waiting()
    talk.begin()
    talk.wait(90)
    assert not talk.told


def test_a_node_that_was_here_is_said_to_have_left() -> None:
    talk = Talk(active=4)
    for infra_rank in (0, 1, 2):
        talk.register(infra_rank)
    talk.silent = {2}
    talk.wait(TIMEOUTS.join - 1)
    (proposed,) = {str(each.message.verdict.reason) for each in talk.wait(1)}  # type: ignore[attr-defined]
    assert proposed == "too few nodes: 2 of 4 came within 60 s; n3 never came; n2 left again"


def test_a_coordinator_that_is_not_in_charge_announces_nothing() -> None:
    machine = CoordinatorMachine(job(), node(1), 1, Memory(0, newest=C0, group="0-2"), 0.0)
    actions = [action for now in (1.0, 11.0, 31.0) for action in machine.handle(Tick(), now)]
    assert not [each for each in actions if isinstance(each, Announce) and isinstance(each.fact, NodesMissing)]

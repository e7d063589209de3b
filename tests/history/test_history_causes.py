"""Tests who failed first in a cycle, when its workers were up, what ended it, and which failures are consequences."""

import pytest
from tests.history.recordings import RECORDED, states, told

from ft_supervisor.core.protocol.model import Failure
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.history.builder import build
from ft_supervisor.history.cycles import cycles
from ft_supervisor.history.fact import FactKind, JournalFacts, RunFact
from ft_supervisor.history.facts import facts
from ft_supervisor.history.from_agent import AgentEventReader
from ft_supervisor.history.model import CycleEnd, History, LostNode
from ft_supervisor.history.nodes import nodes


def test_what_a_lost_coordinator_s_rules_have_excluded_is_known_from_its_successor() -> None:
    path = RECORDED / "takeover/4242.0.0/journal/node1/journal-coordinator-1.jsonl"
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"TookCharge"' in line)
    lines[at] = lines[at].replace('"excluded":""', '"excluded":"2"')
    found = facts("".join(f"{line}\n" for line in lines).encode().splitlines(keepends=True))
    history = build("4242.0.0", [found, *told("takeover", "agent")], None)
    assert states(history, 2)[:2] == ["standby", "excluded"]


@pytest.mark.parametrize(
    ("announced", "decided", "cause"),
    [("growth", True, "growth"), ("drain", True, "drain"), ("", True, "other"), ("", False, "unknown")],
)
def test_a_cause_is_what_the_coordinator_has_announced(announced: str, decided: bool, cause: str) -> None:
    story = [
        RunFact(1.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0, 1)),
        RunFact(2.0, FactKind.NODE_LOST, node=0, noticed=2.0, reason="n0 was not heard for 7 s"),
        RunFact(3.0, FactKind.CYCLE_FAILED, cycle="0.0", reason="n0 was not heard for 7 s", cause=announced),
        *([RunFact(4.0, FactKind.DECIDED, cycle="0.0", cause=announced)] if decided else []),
        RunFact(4.0, FactKind.CYCLE_BEGAN, cycle="0.1", group=(0, 1)),
    ]
    first, second = cycles(story, ["n0", "n1"], None)
    assert (first.cause, first.ended, second.ended) == (cause, CycleEnd.FAILED, CycleEnd.RUNNING)


def test_who_has_no_time_did_not_fail_first() -> None:
    timeless, early, late = (Failure(rank, 0, exit_code=1, time=time) for rank, time in ((0, 0.0), (1, 3.0), (2, 4.0)))
    story = [
        RunFact(1.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0, 1, 2)),
        RunFact(5.0, FactKind.WORKERS_EXITED, node=0, cycle="0.0", failures=(timeless, late, early)),
        RunFact(5.0, FactKind.CYCLE_FAILED, cycle="0.0", reason="x"),
    ]
    (cycle,) = cycles(story, ["n0", "n1", "n2"], None)
    assert cycle.failures == (early, late, timeless)
    assert cycle.loss is not None and cycle.loss.detection == 2.0


def test_workers_are_up_when_the_last_of_them_was_heard() -> None:
    agent = AgentEventReader(7, 2)
    start = {"type": "Start", "run": {"cycle": {"term": 0, "n": 3}, "group": "7"}}

    def beat(at: float, rank: int) -> list[FactKind]:
        return [fact.kind for fact in agent.facts(at, {"type": "Beat", "local_rank": rank}, [])]

    assert [fact.kind for fact in agent.facts(1.0, {}, [start])] == [FactKind.WORKERS_STARTED]
    assert (beat(2.0, 1), beat(3.0, 1), agent.waits_for_beats) == ([], [], True)
    assert (beat(4.0, 0), beat(5.0, 0), agent.waits_for_beats) == ([FactKind.ALL_BEAT], [], False)


def test_a_failure_of_which_nobody_has_decided_has_no_cause_yet() -> None:
    (story,) = cycles(
        [
            RunFact(1.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0,)),
            RunFact(2.0, FactKind.CYCLE_FAILED, cycle="0.0", reason="x"),
        ],
        ["n0"],
        None,
    )
    assert story.ended is CycleEnd.FAILED and story.cause == "unknown" and story.loss is not None
    assert (story.loss.detection, story.loss.stop, story.loss.resumed) == (None, None, None)


def test_a_node_that_calls_itself_unhealthy_is_excluded() -> None:
    story = [
        RunFact(1.0, FactKind.NODE_REGISTERED, node=0),
        RunFact(1.0, FactKind.NODE_REGISTERED, node=1),
        RunFact(2.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0,)),
        RunFact(3.0, FactKind.NODE_UNHEALTHY, node=1, reason="no disk"),
        RunFact(4.0, FactKind.NODE_UNHEALTHY, node=0, reason="no GPU"),
        RunFact(5.0, FactKind.CYCLE_FAILED, cycle="0.0"),
    ]
    found = nodes(story, ["n0", "n1"])
    assert [(span.state.value, span.start, span.reason) for node in found for span in node.spans] == [
        ("standby", 1.0, ""),
        ("active", 2.0, ""),
        ("excluded", 5.0, "no GPU"),
        ("standby", 1.0, ""),
        ("excluded", 3.0, "no disk"),
    ]


LOST = "n2 was not heard for 7 s"


def beaten(*failures: Failure, cause: str = "lost_node") -> History:
    """Nodes 0 and 1 fail because their peer, node 2, is gone; it was last heard at 10.0. `cause`: that of the
    decision."""
    led = [
        RunFact(1.0, FactKind.TOOK_CHARGE, term=0, node=0),
        RunFact(1.0, FactKind.CYCLE_BEGAN, term=0, cycle="0.0", group=(0, 1, 2)),
        RunFact(10.3, FactKind.CYCLE_FAILED, term=0, cycle="0.0", reason="n0: worker 0 of node 0: exit code 1"),
        RunFact(10.0, FactKind.NODE_LOST, term=0, node=2, reason=LOST, noticed=17.0),
        RunFact(17.0, FactKind.DECIDED, term=0, cycle="0.0", reason=LOST, cause=cause, response="restart"),
        RunFact(17.0, FactKind.CYCLE_BEGAN, term=0, cycle="0.1", group=(0, 1)),
        RunFact(19.0, FactKind.NODE_LOST, term=0, node=1, reason="later", noticed=26.0),
    ]
    led += [
        RunFact(10.3, FactKind.WORKERS_EXITED, term=0, node=each.infra_rank, cycle="0.0", failures=(each,))
        for each in failures
    ]
    ended = JournalFacts(machine="coordinator", nodes=("n0", "n1", "n2"), node=0, per_node=1, first=1.0, last=30.0)
    ended.facts = sorted(led, key=lambda fact: fact.noticed or fact.at)
    return build("4242.0.0", [ended], None)


def test_a_peer_fails_as_a_consequence_of_a_lost_node() -> None:
    history = beaten(Failure(1, 0, exit_code=1, time=10.2), Failure(0, 0, exit_code=1, time=10.1))
    first, cycle = history.first_failure, history.cycles[0]
    assert first is not None and (first.node, first.consequence_of) == ("n0", LOST)
    assert cycle.cause == "lost_node" and cycle.lost == (LostNode("n2", 10.0),), "not who was lost in the next cycle"
    assert cycle.loss is not None and cycle.loss.at == 10.0 and cycle.loss.detection == pytest.approx(0.3)


def test_who_was_dead_when_a_cycle_began_was_never_in_it() -> None:
    story = [
        RunFact(1.0, FactKind.NODE_REGISTERED, node=0),
        RunFact(5.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0,)),
        RunFact(9.0, FactKind.CYCLE_FAILED, cycle="0.0"),
        RunFact(4.0, FactKind.NODE_LOST, node=0, noticed=10.0, reason="silent"),
    ]
    (node,) = nodes(story, ["n0"])
    assert [(span.state.value, span.start, span.end) for span in node.spans] == [
        ("standby", 1.0, 4.0),
        ("lost", 4.0, None),
    ]


@pytest.mark.parametrize(
    ("failure", "cause", "what"),
    [
        (Failure(2, 0, exit_code=1, time=10.1), "lost_node", "it is the lost node's own"),
        (Failure(0, 0, exit_code=1, time=8.0), "lost_node", "the other one was heard long after it"),
        (Failure(0, 0, exit_code=1, time=10.1), "exit", "a rule has called it what it is"),
    ],
)
def test_what_is_no_consequence(failure: Failure, cause: str, what: str) -> None:
    first = beaten(failure, cause=cause).first_failure
    assert first is not None and first.consequence_of == "", what


def test_who_fails_while_it_is_stopped_makes_the_lost_node_no_later() -> None:
    loss = beaten(Failure(0, 0, exit_code=1, time=17.5)).cycles[0].loss
    assert loss is not None and loss.at == 10.0


def test_the_culprit_of_a_hang_is_a_failure_though_no_agent_reported_it() -> None:
    """All its workers run when the coordinator names it: it never exits by itself."""
    culprit = Failure(1, 0, time=10.0, cause=Cause.HANG, silent=8.0, message="never entered all_reduce 5", rank=1)
    led = [
        RunFact(1.0, FactKind.TOOK_CHARGE, term=0, node=0),
        RunFact(1.0, FactKind.CYCLE_BEGAN, term=0, cycle="0.0", group=(0, 1)),
        RunFact(10.1, FactKind.CYCLE_FAILED, term=0, cycle="0.0", reason="rank 1 hangs", cause="hang"),
        RunFact(10.2, FactKind.FIRST_FAILURE, term=0, cycle="0.0", failures=(culprit,)),
        RunFact(10.3, FactKind.DECIDED, term=0, cycle="0.0", reason="rank 1 hangs", cause="hang", response="restart"),
        RunFact(10.4, FactKind.CYCLE_BEGAN, term=0, cycle="0.1", group=(0, 1)),
    ]
    ended = JournalFacts(machine="coordinator", nodes=("n0", "n1"), node=0, per_node=1, first=1.0, last=30.0)
    ended.facts = led
    history = build("4242.0.0", [ended], None)
    first, cycle = history.first_failure, history.cycles[0]
    assert first is not None and (first.node, first.rank, first.failure.message) == ("n1", 1, culprit.message)
    assert cycle.failures == (culprit,)

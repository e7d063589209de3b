"""Tests a run's history from the journals of real runs (recorded/README.md), whole and with missing parts."""

import json
import re
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.protocol.model import Failure, Outcome
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.history.builder import build
from ft_supervisor.history.clocks import offsets
from ft_supervisor.history.cycles import cycles
from ft_supervisor.history.fact import FactKind, JournalFacts, RunFact
from ft_supervisor.history.facts import facts
from ft_supervisor.history.from_agent import AgentEventReader
from ft_supervisor.history.from_coordinator import CoordinatorEventReader
from ft_supervisor.history.model import CycleEnd, CycleStory, History, LostNode, SpanState
from ft_supervisor.history.nodes import nodes
from ft_supervisor.history.read_run import read
from ft_supervisor.journal import lines
from ft_supervisor.journal.lines import BadJournal

RECORDED = Path(__file__).parent / "recorded"
CASES = ["crash", "node-lost", "takeover", "budget-spent", "hang", "running"]


def recorded(case: str) -> History:
    return read(RECORDED / case / "4242.0.0")


def told(case: str, only: str = "") -> list[JournalFacts]:
    paths = sorted((RECORDED / case / "4242.0.0").glob(f"journal/*/journal-{only}*.jsonl"))
    assert paths
    return [facts(path.read_bytes().splitlines(keepends=True)) for path in paths]


def states(history: History, node: int) -> list[str]:
    """Return the states of a node, with its cycles."""
    return [f"{span.state} {span.cycle}".strip() for span in history.nodes[node].spans]


def times(cycle: CycleStory) -> tuple[float | None, ...]:
    """Return the parts of the time that the failure cost."""
    return astuple(cycle.loss) if cycle.loss else ()


def check(history: History) -> None:
    """Check what must hold for any history."""
    for node in history.nodes:
        for one, other in zip(node.spans, node.spans[1:], strict=False):
            assert one.end is not None and one.start <= one.end <= other.start, node
    for cycle in history.cycles:
        assert cycle.workers_up is None or cycle.end is None or cycle.workers_up <= cycle.end
        if (loss := cycle.loss) is None:
            continue
        parts = (loss.detection, loss.stop, loss.decision, loss.rendezvous, loss.worker_start)
        assert all(part is None or part >= 0 for part in parts), loss
        if loss.total is not None:
            assert sum(part or 0.0 for part in parts) <= loss.total + 1e-3, loss
    assert history.ratio is None or 0 <= history.ratio <= 1
    if history.training is not None and history.length is not None:
        assert history.training <= history.length + 1e-3


@pytest.mark.parametrize("case", CASES)
def test_every_recorded_run_makes_sense(case: str) -> None:
    history = recorded(case)
    check(history)
    assert history.run_id == "4242.0.0" and history.per_node == 1 and history.active == 2
    assert [node.name for node in history.nodes] == [f"node{i}" for i in range(len(history.nodes))]


def test_a_crash_is_told_with_all_its_times() -> None:
    history = recorded("crash")
    first, second = history.cycles
    assert (first.number, first.nodes, first.ended, first.cause) == ("0.0", ("node0", "node1"), CycleEnd.FAILED, "exit")
    assert first.reason == "node1: worker 0 of node 1: exit code 1"
    assert first.response == "restart" and first.rule.endswith("(rule 1)")
    assert [failure.infra_rank for failure in first.failures] == [1]
    assert (second.number, second.n, second.ended) == ("0.1", 1, CycleEnd.SUCCESS)
    loss = first.loss
    assert loss is not None and loss.total is not None and second.workers_up is not None
    assert None not in (loss.detection, loss.stop, loss.decision, loss.rendezvous, loss.worker_start)
    # The parts follow one another without a gap: from the worker's exit until the last worker of the next cycle is up.
    parts = [loss.detection, loss.stop, loss.decision, loss.rendezvous, loss.worker_start]
    assert sum(part or 0.0 for part in parts) == pytest.approx(loss.total, abs=0.002)
    assert loss.resumed == second.workers_up and loss.at == pytest.approx(first.failures[0].time)
    assert history.lost == loss.total
    assert states(history, 1) == ["active 0.0", "stopped", "active 0.1"], "it came last, and was told to run at once"
    assert states(history, 2) == ["standby"]
    assert history.nodes[1].state is None, "it has left"
    assert history.verdict is not None and history.verdict.outcome is Outcome.SUCCESS
    assert not history.notes


def test_training_is_what_lies_between_the_last_worker_s_start_and_the_first_failure() -> None:
    history = recorded("crash")
    first, second = history.cycles
    assert first.workers_up and second.workers_up and first.loss and second.end
    expected = (first.loss.at - first.workers_up) + (second.end - second.workers_up)
    assert history.training == pytest.approx(expected)
    assert history.start is not None and history.ended is not None
    assert history.ratio == pytest.approx(expected / (history.ended - history.start))


def test_a_lost_node_is_lost_from_when_it_was_last_heard() -> None:
    history = recorded("node-lost")
    first, second = history.cycles
    assert first.cause == "lost_node" and first.reason == "node1 was not heard for 7 s"
    assert second.nodes == ("node0", "node2")
    assert states(history, 1) == ["standby", "active 0.0", "lost"]
    assert states(history, 2) == ["standby", "active 0.1"]
    lost = history.nodes[1].spans[-1]
    assert lost.end is None and history.nodes[1].state is SpanState.LOST
    assert first.loss is not None and first.loss.at == lost.start
    assert first.loss.detection == pytest.approx(7.0, abs=0.6), "node_lost is 7 s, and a heartbeat takes half a second"
    assert first.loss.stop is not None and first.loss.stop < 1, "what is lost is not waited for"
    assert any("node1" in note for note in history.notes), "its agent's journal died with it"


def test_a_takeover_is_told_and_costs_nothing() -> None:
    history = recorded("takeover")
    (takeover,) = history.takeovers
    assert (takeover.node, takeover.term) == ("node1", 1)
    lost = [fact.at for each in told("takeover", "agent") for fact in each.facts if fact.kind is FactKind.DISCONNECTED]
    first_lost = min(at for at in lost if takeover.at - 5 < at < takeover.at)
    assert takeover.gap == pytest.approx(takeover.at - first_lost)
    assert [cycle.number for cycle in history.cycles] == ["0.0", "1.1", "1.2"]
    assert [cycle.cause for cycle in history.cycles] == ["exit", "lost_node", ""]
    first = history.cycles[0]
    assert first.start is not None and first.end is not None and first.start < takeover.at < first.end
    assert states(history, 0) == ["standby", "active 0.0", "stopped", "active 1.1", "lost"]
    assert states(history, 2) == ["standby", "active 1.2"]
    assert history.cycles[-1].nodes == ("node2", "node1"), "the others keep their group_ranks"


def test_a_spent_budget_is_told_with_who_was_excluded_and_what_it_printed() -> None:
    history = recorded("budget-spent")
    assert [cycle.response for cycle in history.cycles] == ["replace_node", "restart", "restart", "gives_up"]
    assert states(history, 1)[-1] == "excluded" and "ECC" in history.nodes[1].spans[-1].reason
    last = history.cycles[-1].loss
    assert last is not None and last.resumed is None and last.total is None and last.decision is not None
    assert history.verdict is not None and history.verdict.outcome is Outcome.FAILED
    failure = history.first_failure
    assert failure is not None and (failure.cycle, failure.node, failure.rank) == ("0.3", "node0", 0)
    assert failure.lines and failure.source == "logs/0.3/rank0.log"


def test_a_hang_is_counted_from_the_beginning_of_its_silence() -> None:
    history = recorded("hang")
    first, second = history.cycles
    assert first.cause == "hang" and second.ended is CycleEnd.ENDED
    assert first.loss is not None and first.loss.detection == pytest.approx(2.0), "hang.after"
    assert first.loss.total is not None and first.loss.total > 2.0
    assert history.verdict is not None and history.verdict.outcome is Outcome.CANCELLED
    failure = history.first_failure
    assert failure is not None and (failure.rank, failure.stacks) == (1, "stacks/0.0/1.txt")


def test_an_agent_s_own_hang_is_counted_so_too() -> None:
    silent = Failure(0, -1, message="not heard by its daemon for 3.5 s", cause=Cause.HANG, silent=3.5)
    story = [
        RunFact(1.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0,)),
        RunFact(9.0, FactKind.WORKERS_EXITED, node=0, cycle="0.0", failures=(silent,)),
        RunFact(9.0, FactKind.CYCLE_FAILED, cycle="0.0", reason=str(silent), cause="hang"),
    ]
    (cycle,) = cycles(story, ["n0"], None)
    assert cycle.cause == "hang" and cycle.loss is not None and cycle.loss.detection == 3.5


def test_a_silence_ends_when_its_node_notices_not_when_its_stacks_are_there() -> None:
    silent = Failure(0, 0, message="no heartbeat for 10 s", time=20.0, cause=Cause.HANG, silent=10.0)
    story = [
        RunFact(1.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0,)),
        RunFact(28.0, FactKind.WORKERS_EXITED, node=0, cycle="0.0", failures=(silent,)),
        RunFact(28.0, FactKind.CYCLE_FAILED, cycle="0.0", reason=str(silent)),
    ]
    (cycle,) = cycles(story, ["n0"], None)
    assert cycle.loss is not None and cycle.loss.detection == 18.0


def test_of_a_running_job_is_told_what_is_known() -> None:
    history = recorded("running")
    assert history.verdict is None and history.ended is None
    assert [cycle.ended for cycle in history.cycles] == [CycleEnd.FAILED, CycleEnd.RUNNING]
    assert history.cycles[-1].end is None
    assert [node.state for node in history.nodes] == [SpanState.ACTIVE, SpanState.ACTIVE, SpanState.STANDBY]
    loss = history.cycles[0].loss
    assert loss is not None and loss.detection is not None and loss.rendezvous is None and loss.worker_start is None
    assert history.training is not None and history.training > 0
    assert any("agent" in note for note in history.notes)


# -- parts


@pytest.mark.parametrize("case", ["crash", "node-lost", "takeover", "budget-spent"])
def test_agents_alone_tell_the_cycles_and_their_nodes(case: str) -> None:
    whole, history = recorded(case), build("4242.0.0", told(case, "agent"), None)
    check(history)
    assert [cycle.number for cycle in history.cycles] == [cycle.number for cycle in whole.cycles]
    assert [cycle.nodes for cycle in history.cycles] == [cycle.nodes for cycle in whole.cycles]
    assert history.cycles[-1].loss is None or history.cycles[-1].loss.stop is None
    assert states(history, 0) != [] and history.verdict is None


def test_agents_alone_tell_who_failed() -> None:
    history = build("4242.0.0", told("crash", "agent"), None)
    assert [cycle.ended for cycle in history.cycles] == [CycleEnd.FAILED, CycleEnd.SUCCESS]
    assert history.cycles[0].cause == "exit" and history.cycles[0].reason == "worker 0 of node 1: exit code 1"
    assert history.first_failure is not None and history.first_failure.rank == 1


def test_coordinators_alone_tell_all_but_the_start_of_workers() -> None:
    whole, history = recorded("crash"), build("4242.0.0", told("crash", "coordinator"), None)
    check(history)
    assert [(c.number, c.ended, c.cause, c.reason) for c in history.cycles] == [
        (c.number, c.ended, c.cause, c.reason) for c in whole.cycles
    ]
    loss = history.cycles[0].loss
    assert loss is not None and loss.rendezvous is None and loss.worker_start is None and loss.stop is not None
    assert loss.resumed == history.cycles[1].start
    assert all(node.state is None for node in history.nodes), "each has said Goodbye"
    assert history.verdict is not None and history.verdict.outcome is Outcome.SUCCESS


def test_a_missing_coordinator_s_times_are_told_by_agents() -> None:
    without = [each for each in told("takeover") if not (each.machine == "coordinator" and each.node == 0)]
    history = build("4242.0.0", without, None)
    check(history)
    assert [cycle.number for cycle in history.cycles] == ["0.0", "1.1", "1.2"]
    assert history.cycles[0].nodes == ("node0", "node1") and history.cycles[0].start is not None
    assert states(history, 0) == ["active 0.0", "stopped", "active 1.1", "lost"]


def test_what_a_deposed_coordinator_says_later_is_left_out() -> None:
    journals = told("takeover", "coordinator")
    old = next(each for each in journals if each.node == 0 and each.facts)
    new = next(each for each in journals if each.node == 1 and each.facts)
    late = next(fact for fact in new.facts if fact.kind is FactKind.VERDICT_CLOSED).at
    old.facts.append(
        RunFact(late, FactKind.NODE_LOST, term=0, node=3, reason="it was cut off, and did not know", noticed=late)
    )
    history = build("4242.0.0", journals, None)
    assert states(history, 3) == ["standby"]
    assert history == build("4242.0.0", told("takeover", "coordinator"), None)


def test_nothing_at_all_is_no_history() -> None:
    history = build("4242.0.0", [], None)
    assert (history.nodes, history.cycles, history.start, history.training, history.ratio) == ((), (), None, None, None)


# -- clocks


def test_a_failing_node_s_clock_that_is_ahead_makes_no_time_negative() -> None:
    path = RECORDED / "crash/4242.0.0/journal/node0/journal-coordinator-1.jsonl"
    (failure,) = recorded("crash").cycles[0].failures
    ahead = path.read_text().replace(str(failure.time), str(failure.time + 5))
    history = build("4242.0.0", [facts(ahead.encode().splitlines(keepends=True))], None)
    check(history)
    loss = history.cycles[0].loss
    assert loss is not None and loss.detection is None and loss.stop is not None
    assert loss.total is not None and loss.at == history.cycles[0].end


def with_failure_time(time: str) -> JournalFacts:
    """Return the recorded coordinator's journal, with this time in the failure."""
    path = RECORDED / "crash/4242.0.0/journal/node0/journal-coordinator-1.jsonl"
    (failure,) = recorded("crash").cycles[0].failures
    return facts(path.read_text().replace(str(failure.time), time).encode().splitlines(keepends=True))


@pytest.mark.parametrize("time", ["0.0", "12.5"])
def test_a_failure_s_time_that_is_none_is_no_time(time: str) -> None:
    history = build("4242.0.0", [with_failure_time(time)], None)
    check(history)
    loss = history.cycles[0].loss
    assert loss is not None and loss.detection is None and loss.at == history.cycles[0].end
    assert history.first_failure is not None and json.dumps(history.first_failure.failure.time, allow_nan=False)


@pytest.mark.parametrize("time", ["NaN", "-Infinity", "1e300"])
def test_a_failure_at_a_time_that_cannot_be_is_a_strange_line(time: str) -> None:
    found = with_failure_time(time)
    assert found.strange > with_failure_time("0.0").strange
    history = build("4242.0.0", [found], None)
    check(history)
    assert history.verdict == recorded("crash").verdict


@pytest.mark.parametrize("now", ["NaN", "1e300", "-1e300", "Infinity"])
def test_a_time_that_cannot_be_is_a_strange_line(now: str) -> None:
    lines = (RECORDED / "crash/4242.0.0/journal/node0/journal-coordinator-1.jsonl").read_text().splitlines()
    whole = next(i for i, line in enumerate(lines) if '"CycleStarted"' in line)
    quiet = next(i for i, line in enumerate(lines) if line.startswith("["))
    lines[whole] = re.sub(r'"now":[0-9.]+', f'"now":{now}', lines[whole], count=1)
    lines.insert(whole, re.sub(r"^(\[[^,]*),[0-9.]+", rf"\1,{now}", lines[quiet]))
    found = facts("".join(f"{line}\n" for line in lines).encode().splitlines(keepends=True))
    assert found.strange == 2 and found.last is not None and found.last < 2e9
    check(build("4242.0.0", [found], None))


def shifted(case: str, node: int, seconds: float) -> list[JournalFacts]:
    """Return a recorded run in which this node's clock was ahead by so many seconds."""
    found = told(case)
    for each in found:
        times = {failure.time for fact in each.facts for failure in fact.failures if failure.infra_rank == node}
        own = each.node == node and each.machine != "coordinator"
        each.facts = [
            replace(
                fact,
                at=fact.at + seconds if own else fact.at,
                failures=tuple(replace(one, time=one.time + seconds * (one.time in times)) for one in fact.failures),
            )
            for fact in each.facts
        ]
        if own and each.first and each.last:
            each.first, each.last = each.first + seconds, each.last + seconds
    return found


@pytest.mark.parametrize("seconds", [-3600.0, -2.0, 2.0, 3600.0])
@pytest.mark.parametrize(("case", "node"), [("crash", 1), ("budget-spent", 2), ("takeover", 2)])
def test_a_clock_that_is_off_makes_no_difference(case: str, node: int, seconds: float) -> None:
    usual = build("4242.0.0", told(case), None)
    history = build("4242.0.0", shifted(case, node, seconds), None)
    check(history)
    assert [cycle.number for cycle in history.cycles] == [cycle.number for cycle in usual.cycles]
    for one, other in zip(history.cycles, usual.cycles, strict=True):
        for now, then in zip(times(one), times(other), strict=True):
            assert (now is None) == (then is None)
            assert now is None or now == pytest.approx(then, abs=0.25), "as long as a message took"
    assert history.length == pytest.approx(usual.length, abs=0.25)
    assert history.until == pytest.approx(usual.until, abs=0.25) and history.start == pytest.approx(
        usual.start, abs=0.25
    )
    assert history.training == pytest.approx(usual.training, abs=0.5)
    assert len(history.notes) == len(usual.notes) + 1 and f"node{node}" in history.notes[-1]


def test_clocks_that_contradict_one_another_are_left_alone() -> None:
    """Two coordinators' clocks differ: the agent's clock is ahead of one and behind the other."""
    led = [
        RunFact(100.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(1,)),
        RunFact(110.0, FactKind.WORKERS_STOPPED, node=1, cycle="0.0"),
        RunFact(300.0, FactKind.CYCLE_BEGAN, cycle="1.1", group=(1,)),
    ]
    agents = [
        RunFact(103.0, FactKind.WORKERS_STARTED, node=1, cycle="0.0"),
        RunFact(112.0, FactKind.WORKERS_GONE, node=1, cycle="0.0"),
        RunFact(290.0, FactKind.WORKERS_STARTED, node=1, cycle="1.1"),
    ]
    assert offsets(led, agents) == {}
    assert offsets(led[:2], agents[:2]) == {1: 2.0}


def test_clocks_that_agree_are_left_alone() -> None:
    for case in CASES:
        notes = build("4242.0.0", told(case), None).notes
        assert not notes, notes


def test_a_node_was_last_heard_when_it_was_last_heard() -> None:
    """A coordinator that stood still notices the loss later than node_lost after the last heartbeat."""
    path = RECORDED / "node-lost/4242.0.0/journal/node0/journal-coordinator-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"NodeLost"' in line)
    heard = [line for line in lines[:at] if line.startswith(b'["Heard"') and b'"0-3"' in line][-1]
    now = json.loads(lines[at])["now"]
    later = lines[at].replace(json.dumps(now).encode(), json.dumps(now + 3).encode())
    assert later != lines[at]
    (lost,) = [fact for fact in facts([*lines[:at], later]).facts if fact.kind is FactKind.NODE_LOST]
    assert lost.noticed is not None
    assert lost.noticed - lost.at == pytest.approx(now + 3 - json.loads(heard)[1], abs=0.01)


def test_spans_do_not_overlap_though_a_loss_is_told_late() -> None:
    story = [
        RunFact(1.0, FactKind.NODE_REGISTERED, node=0),
        RunFact(2.0, FactKind.CYCLE_BEGAN, cycle="0.0", group=(0,)),
        RunFact(10.0, FactKind.CYCLE_FAILED, cycle="0.0"),
        RunFact(8.0, FactKind.NODE_LOST, node=0, noticed=11.0),
        RunFact(9.0, FactKind.NODE_LOST, node=0, noticed=11.5),
        RunFact(12.0, FactKind.NODE_REGISTERED, node=0),
    ]
    (node,) = nodes(story, ["n0"])
    assert [(span.state.value, span.start, span.end) for span in node.spans] == [
        ("standby", 1.0, 2.0),
        ("active", 2.0, 8.0),
        ("lost", 8.0, 12.0),
        ("standby", 12.0, None),
    ]


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


def test_journals_of_the_former_version_are_refused_with_both_versions() -> None:
    path = RECORDED / "former-version/4242.0.0/journal/node0/journal-agent-1.jsonl"
    found = facts(path.read_bytes().splitlines(keepends=True))
    assert not found.facts and found.problem == "it is of version 1; this ft-supervisor reads 2"
    (note,) = [note for note in recorded("former-version").notes if "version 1" in note]
    assert "journal-agent-1.jsonl" in note
    with pytest.raises(BadJournal, match=r"protocol\) \(1, 1\): this ft-supervisor replays \(2, 2\) only"):
        list(lines.read(path))


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


# -- damage


@given(data=st.data())
def test_a_journal_that_ends_anywhere_is_understood_up_to_there(data: st.DataObject) -> None:
    path = RECORDED / "takeover/4242.0.0/journal/node1/journal-coordinator-1.jsonl"
    content = path.read_bytes()
    end = data.draw(st.integers(0, len(content)))
    found = facts(content[:end].splitlines(keepends=True))
    assert found.torn == (end > 0 and content[end - 1 : end] != b"\n") and not found.strange
    check(build("4242.0.0", [*told("takeover", "agent"), found], None))


@given(data=st.data())
def test_damaged_lines_are_counted_and_passed_over(data: st.DataObject) -> None:
    lines = (
        (RECORDED / "crash/4242.0.0/journal/node0/journal-coordinator-1.jsonl").read_bytes().splitlines(keepends=True)
    )
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(lines) - 1))
        start = data.draw(st.integers(0, max(0, len(lines[at]) - 2)))
        noise = data.draw(st.binary(max_size=8)).replace(b"\n", b"")
        lines[at] = lines[at][:start] + noise + b"\n"
    check(build("4242.0.0", [facts(lines), *told("crash", "agent")], None))


def test_lines_of_another_shape_are_counted() -> None:
    lines = (
        (RECORDED / "crash/4242.0.0/journal/node0/journal-coordinator-1.jsonl").read_bytes().splitlines(keepends=True)
    )
    odd = [b'{"time":"x","now":"y","term":0,"cycle":null,"event":{},"actions":[],"reason":null}\n', b"7\n", b"{}\n"]
    found = facts([*lines[:3], *odd, *lines[3:]])
    assert found.torn == 1 and found.strange == 2
    assert len(found.facts) == len(facts(lines).facts)


def test_a_journal_of_another_version_says_so() -> None:
    found = facts([b'{"journal":7,"protocol":9}\n', b'{"anything":1}\n'])
    assert "version 7" in found.problem and not found.facts


def test_a_new_field_is_no_hindrance() -> None:
    lines = (RECORDED / "crash/4242.0.0/journal/node0/journal-coordinator-1.jsonl").read_bytes()
    newer = lines.replace(b'"local_rank":', b'"colour":"red","local_rank":')
    assert newer != lines
    found = facts(newer.splitlines(keepends=True))
    assert not found.strange and found.facts == facts(lines.splitlines(keepends=True)).facts


def test_why_a_node_is_unhealthy_is_read_from_its_register() -> None:
    unhealthy = {"check": "disk", "reason": "no disk"}
    register = {
        "type": "Register",
        "node": {"infra_rank": 1},
        "memory": {"newest": None, "group": "", "unhealthy": unhealthy},
    }
    event = CoordinatorEventReader(1.0, 0, 0, ("n0", "n1"), (), lambda _: 0.0)
    (fact,) = event.facts(register, [])
    assert (fact.kind, fact.node, fact.reason) == (FactKind.NODE_UNHEALTHY, 1, "no disk")

"""Tests a run's history from clocks that are off or contradict one another, and from damaged or older journals."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history.recordings import CASES, RECORDED, check, recorded, shifted, times, told

from ft_supervisor.history.builder import build
from ft_supervisor.history.clocks import offsets
from ft_supervisor.history.fact import FactKind, JournalFacts, RunFact
from ft_supervisor.history.facts import facts
from ft_supervisor.history.from_coordinator import CoordinatorEventReader
from ft_supervisor.history.nodes import nodes
from ft_supervisor.journal import lines
from ft_supervisor.journal.lines import BadJournal

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


def test_a_node_that_never_called_again_was_lost_in_the_coordinator_s_second_time_in_charge() -> None:
    """The coordinator was in charge, another took over, and it was in charge again: what it heard of a node in its
    first time says nothing of the second, in which the node, from which it never heard, trained for five minutes."""
    path = RECORDED / "node-lost/4242.0.0/journal/node0/journal-coordinator-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"NodeLost"' in line)
    line = json.loads(lines[at])
    (fact,) = [each["fact"] for each in line["actions"] if each.get("fact", {}).get("type") == "NodeLost"]
    again = fact["heard"] + 300
    line["now"] += 300
    fact["heard"] = again
    (lost,) = [
        fact
        for fact in facts([*lines[:at], json.dumps(line).encode() + b"\n"]).facts
        if fact.kind is FactKind.NODE_LOST
    ]
    assert lost.noticed is not None
    assert lost.noticed - lost.at == pytest.approx(line["now"] - again, abs=0.01)


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
    event = CoordinatorEventReader(1.0, 0, 0, ("n0", "n1"), (), 0.0)
    (fact,) = event.facts(register, [])
    assert (fact.kind, fact.node, fact.reason) == (FactKind.NODE_UNHEALTHY, 1, "no disk")


def test_journals_of_the_former_version_are_refused_with_both_versions() -> None:
    path = RECORDED / "former-version/4242.0.0/journal/node0/journal-agent-1.jsonl"
    found = facts(path.read_bytes().splitlines(keepends=True))
    assert not found.facts and found.problem == "it is of version 1; this ft-supervisor reads 2"
    (note,) = [note for note in recorded("former-version").notes if "version 1" in note]
    assert "journal-agent-1.jsonl" in note
    with pytest.raises(BadJournal, match=r"protocol\) \(1, 1\): this ft-supervisor replays \(2, 3\) only"):
        list(lines.read(path))

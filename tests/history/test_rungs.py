"""Tests the rung of each restart of a run, as its journals have it, and as a report, `status` and metrics show it."""

from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.watched import Watched
from tests.core.machines import C0, Talk, failed, job, stopped
from tests.report.report_texts import report

from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.protocol.agent_facts import WorkersMade
from ft_supervisor.core.protocol.codec import to_plain
from ft_supervisor.core.protocol.coordinator_facts import CycleFailed, CycleStarted, Decided
from ft_supervisor.core.protocol.settings import Cause, Response, RestartMode, RungReason
from ft_supervisor.history.cycles import cycles
from ft_supervisor.history.fact import RunFact
from ft_supervisor.history.from_agent import AgentEventReader
from ft_supervisor.history.from_coordinator import CoordinatorEventReader
from ft_supervisor.history.model import Made
from ft_supervisor.process.log_lines import render
from ft_supervisor.report import render_json, render_text, words

DECIDED = Decided(
    *(C0, Response.RESTART, False, "n1: worker 0 of node 1: raises ValueError", Cause.EXIT, 0, 1, (), 0.0),
    how=RestartMode.IN_PROCESS,
    why=RungReason.ALLOWED,
)
NAMES = ("n0", "n1", "n2")


def dumped(fact: Any) -> list[dict[str, Any]]:
    """Return the announcement of a fact as a journal has it."""
    return [{"type": "Announce", "fact": {"type": type(fact).__name__, **to_plain(fact)}}]


def coordinators(at: float, fact: Any) -> list[RunFact]:
    reader = CoordinatorEventReader(at, 0, 0, NAMES, ("job.yaml:3",), 0.0)
    return list(reader.facts({}, dumped(fact)))


def made(node: int, at: float, *numbers: int) -> list[RunFact]:
    return list(AgentEventReader(node, 2).facts(at, {}, dumped(WorkersMade(C0, *numbers))))


def test_the_counts_of_all_nodes_are_added_and_the_decision_names_its_rung() -> None:
    facts = [
        *coordinators(1.0, CycleStarted(C0, (), (0, 1), "enough nodes")),
        *made(0, 1.1, 2, 0, 0),
        *made(1, 1.2, 1, 1, 0),
        *coordinators(5.0, CycleFailed(C0, DECIDED.reason, Cause.EXIT, 1)),
        *coordinators(6.0, DECIDED),
    ]
    (story,) = cycles(facts, NAMES, None)
    assert story.made == Made(3, 1, 0) and words.made(story) == "3 in process, 1 warm"
    assert (story.how, story.why) == ("in_process", "allowed")
    assert words.why(story).endswith("[restart in process, job.yaml:3 (rule 1)]")


def test_a_node_whose_journal_is_missing_is_named_unknown() -> None:
    (story,) = cycles(
        [*coordinators(1.0, CycleStarted(C0, (), (0, 1), "enough nodes")), *made(0, 1.1, 2, 0, 0)], NAMES, None
    )
    assert story.made == Made(2, 0, 0, unknown_nodes=1) and words.made(story) == "2 in process, 1 node unknown"


def test_a_report_shows_how_the_workers_of_a_cycle_were_made() -> None:
    plain = report("crash")
    first, second = plain.runs[0].cycles
    first, second = (
        replace(first, how="process", why="before_progress", made=Made(0, 0, 2)),
        replace(second, made=Made(1, 1, 0)),
    )
    found = replace(plain, runs=(replace(plain.runs[0], cycles=(first, second)),))
    data = render_json.render(found)
    assert '"how": "process"' in data and '"in_process": 1' in data
    shown = " ".join(render_text.render(found, 200).split())
    assert "1 in process, 1 warm" in shown and "with new processes (it had made no progress)" in shown
    medium = render_text.render(found, 80).splitlines()
    (at,) = (at for at, line in enumerate(medium) if "1 in process," in line)
    assert "1 warm" in medium[at + 1] and "1 warm" not in medium[at], "the reason has the room"
    assert "1 in process, 1 warm" in render_text.render(found, 60)


def test_without_the_setting_a_decision_has_no_rung_in_the_log() -> None:
    names = [name for name, _ in render(replace(DECIDED, how=None, why=None), job()).fields]
    assert "how" not in names and "why" not in names
    assert dict(render(DECIDED, job()).fields)["how"] == "in_process"
    assert dict(render(DECIDED, job()).fields)["why"] == "allowed"


def in_process() -> Any:
    plain = job()
    return replace(plain, settings=replace(plain.settings, restart=RestartMode.IN_PROCESS))


def restart(talk: Talk, progressed: bool) -> None:
    talk.begin()
    talk.hear(failed(1))
    for rank in range(3):
        talk.hear(replace(stopped(rank), parked=1, progressed=progressed))
        talk.hear(replace(stopped(rank), parked=1, progressed=progressed))
    talk.wait(1.0)


@pytest.mark.parametrize(
    ("progressed", "rung"), [(True, ("in_process", "allowed")), (False, ("process", "before_progress"))]
)
def test_status_tells_the_rung_of_the_last_decision(progressed: bool, rung: tuple[str, str]) -> None:
    talk = Talk(a_job=in_process())
    restart(talk, progressed)
    decision = snapshot(talk.machine, talk.now, 1000.0).decision
    assert decision is not None and (decision.how, decision.why) == rung


def test_metrics_count_rungs_and_parked_workers_once() -> None:
    talk = Watched(a_job=in_process())
    restart(talk, progressed=True)
    assert talk.values("restart_rungs_total") == {"in_process": 1, "process": 0}
    assert talk.value("workers_parked_total") == 3

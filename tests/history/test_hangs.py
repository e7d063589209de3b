"""Tests what a report says of a cycle that hung: whom the coordinator has named, and where that rank was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.history.recordings import recorded
from tests.report.report_texts import report

from ft_supervisor.core.protocol.actions import Announce, Fact
from ft_supervisor.core.protocol.coordinator_facts import (
    CycleFailed,
    CycleStarted,
    Decided,
    FirstFailure,
    HangExplained,
)
from ft_supervisor.core.protocol.evidence import Cluster, Collective, EvidenceSource, Explanation, Ground
from ft_supervisor.core.protocol.messages import WorkersFailed
from ft_supervisor.core.protocol.model import Cycle, Failure
from ft_supervisor.core.protocol.settings import Cause, Culprit, Response
from ft_supervisor.history.cycles import cycles
from ft_supervisor.history.fact import RunFact
from ft_supervisor.history.from_coordinator import CoordinatorEventReader
from ft_supervisor.history.model import CycleStory, History
from ft_supervisor.journal.tagged import dump
from ft_supervisor.report import render_html, render_text
from ft_supervisor.report.advice import advised
from ft_supervisor.report.cards import blame, cards
from ft_supervisor.report.lost_by import blamed

NAMES = ("n0", "n1", "n2")
C0, C1 = Cycle(0, 0), Cycle(0, 1)
SAYS = "never entered all_reduce 7 of group dp; it is in data.py:1"
REASON = f"rank 3 (n1, local 1) {SAYS}; 5 others wait in it"
NOT_KNOWN = "a collective hangs; who began it is not known; 6 ranks wait in all_reduce 7 of group dp"
BEHIND = Explanation(
    Ground.BEHIND,
    "3",
    Collective("dp", 7, "all_reduce"),
    5,
    clusters=(
        Cluster("3", "data.py:1", EvidenceSource.WORKER_SERVER),
        Cluster("0-2,4-5", "train.py:9", EvidenceSource.WORKER_SERVER),
    ),
)
SPREAD = replace(BEHIND, culprits="1,3", waiting=4, clusters=())


def explained(reason: str, node: int | None, found: Explanation) -> HangExplained:
    return HangExplained(C0, reason, node, found, 0.0, 0.4, 3)


def story(
    explanation: HangExplained, *, failure: Failure | None = None, reason: str = "", late: Failure | None = None
) -> CycleStory:
    """Return the first of two cycles: it hung, and none of its workers failed before it was stopped. `failure`: the one
    that the coordinator names; `late`: of a worker that failed while it was stopped."""
    why = reason or explanation.reason
    decided = Decided(C0, Response.RESTART, False, f"restart: {why}", Cause.HANG, 0, 1, (), 0.0)
    named = () if failure is None else (FirstFailure(C0, failure.rank, failure.infra_rank, failure),)
    events: list[tuple[float, list[Fact]]] = [
        (1.0, [CycleStarted(C0, (), (0, 1, 2), "these")]),
        (9.0, [explanation, CycleFailed(C0, why, Cause.HANG, explanation.infra_rank)]),
        (11.0, [*named, decided]),
        (12.0, [CycleStarted(C1, (0, 1, 2), (0, 1, 2), "these", "again")]),
    ]
    read: list[RunFact] = []
    for at, announced in events:
        reader = CoordinatorEventReader(at, 0, 0, NAMES, ("job.yaml:3",), 0.0)
        read += reader.facts({}, dump([Announce(fact) for fact in announced]))
    if late is not None:
        told = WorkersFailed(0, late.infra_rank, 1, C0, (late,))
        read += CoordinatorEventReader(10.0, 0, 0, NAMES, (), 0.0).facts(dump(told), [])
    return cycles(read, NAMES, None, 2)[0]


@pytest.fixture
def culprit() -> CycleStory:
    failure = Failure(1, 1, message=SAYS, time=9.0, cause=Cause.HANG, rank=3, last_lines="step 4\nstep 5")
    return story(explained(REASON, 1, BEHIND), failure=failure)


@pytest.fixture
def unknown() -> CycleStory:
    return story(explained(NOT_KNOWN, None, Explanation(Ground.NONE)))


def run(cycle: CycleStory) -> History:
    """Return a recorded run in which the cycle is the only one that failed."""
    return replace(recorded("hang"), cycles=(cycle,), verdict=None)


def test_the_named_rank_is_the_first_failure_though_no_worker_has_failed(culprit: CycleStory) -> None:
    assert culprit.first is not None
    assert (culprit.first.node, culprit.first.rank, culprit.first.lines) == ("n1", 3, ("step 4", "step 5"))
    assert culprit.hang is not None
    assert (culprit.hang.node, culprit.hang.line, culprit.hang.culprit) == ("n1", "data.py:1", Culprit.KNOWN)


def test_card_and_reports_name_the_rank_and_its_line(culprit: CycleStory) -> None:
    history = run(culprit)
    (card,) = cards(history)
    assert card.what == REASON and card.own
    assert blame(history) == f"failed: {REASON}"
    told = report("hang", cycles=(culprit,), verdict=None)
    assert REASON in render_html.render(told)
    text = render_text.render(told, 400)
    assert f"failed: {REASON}" in text and "| step 5" in text
    assert REASON in render_text.brief(told)


def test_where_who_began_it_is_not_known_no_worker_and_no_node_is_named(unknown: CycleStory) -> None:
    assert unknown.first is None
    assert unknown.hang is not None and unknown.hang.culprit is Culprit.UNKNOWN
    assert cards(run(unknown))[0].what == NOT_KNOWN


def test_a_worker_that_fails_while_it_is_stopped_is_not_the_first() -> None:
    killed = Failure(0, 0, signal="SIGKILL", time=10.0)
    found = story(explained(NOT_KNOWN, None, Explanation(Ground.NONE)), late=killed)
    assert len(found.failures) == 1 and found.first is None


def test_what_a_hang_cost_is_its_culprits(culprit: CycleStory, unknown: CycleStory) -> None:
    several = story(explained("ranks 1,3 (n0,n1) never entered it", None, SPREAD))
    whole = recorded("hang")
    found = [
        blamed(replace(whole, cycles=(each, *whole.cycles[1:])), goes_on=False)[0]
        for each in (culprit, unknown, several)
    ]
    assert [(each.cause, each.node, each.hang) for each in found] == [
        ("hang", "n1", "rank 3 (n1, local 1) in data.py:1"),
        ("hang", "unknown", "who began it is not known"),
        ("hang", "unknown", "ranks 1,3"),
    ]


def test_a_cycle_that_ended_for_another_reason_did_not_end_for_the_hang() -> None:
    other = story(explained(REASON, 1, BEHIND), reason="rank 0 (n0, local 0) hangs: no heartbeat for 60 s")
    assert other.hang is None


def test_the_advice_depends_on_what_is_known(culprit: CycleStory, unknown: CycleStory) -> None:
    assert [row.anchor for row in advised(run(culprit))] == ["hang-culprit"]
    assert [row.anchor for row in advised(run(unknown))] == ["hang-culprit-unknown"]

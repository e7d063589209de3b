"""Tests the advice of `status`: rows of docs/3am.md that fit what is wrong now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.machines import Talk, failed, stopped
from tests.status.test_status_text import seen, shot_of, small, words

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.model import Ending, Outcome, Problem, Verdict
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.run_folder.left_running import LeftRunning
from ft_supervisor.run_folder.snapshot import Snapshot
from ft_supervisor.status.judgement import STARTS, Files, JobStatus, Slurm, judge
from ft_supervisor.status.what_to_do import MOST, RECENT, advised

FOLDER = Path("/runs/1/1.0.0")


def anchors(status: JobStatus) -> list[str]:
    return [row.anchor for row in advised(status)]


def test_nothing_is_wrong() -> None:
    assert anchors(seen(shot_of(small()))) == []
    assert "What to do" not in words(seen(shot_of(small())))
    done = Verdict(Outcome.SUCCESS, "all done", ending=Ending.TRAINED)
    assert anchors(seen(shot_of(small()), verdict=done)) == []
    assert anchors(judge("1", Files(FOLDER, made=1000.0), None, 1001.0)) == [], "it is just starting"


def test_a_verdict_s_ending() -> None:
    verdict = Verdict(Outcome.INTERRUPTED, "why not", ending=Ending.TOO_FEW_NODES)
    assert anchors(seen(shot_of(small()), verdict=verdict)) == ["too-few-nodes"]
    found = words(seen(shot_of(small()), verdict=verdict))
    assert "What to do submit it again; bring more spares" in found and "(docs/3am.md#too-few-nodes)" in found
    files = Files(FOLDER, None, verdict, left=LeftRunning(1, "no library here", 1000.0))
    assert anchors(judge("1", files, None, 1001.0)) == ["runs-for-ever", "too-few-nodes"]


def test_nodes_that_have_not_come() -> None:
    talk = Talk()
    talk.register(0)
    talk.wait(10)
    assert anchors(seen(shot_of(talk))) == ["nodes-missing"]


def test_a_job_of_which_nothing_is_seen() -> None:
    assert anchors(judge("1", Files(FOLDER, made=1000.0), None, 1001.0 + STARTS)) == ["nothing-at-all"]
    shot = shot_of(small())
    stale = Files(FOLDER, shot, None)
    assert anchors(judge("1", stale, None, shot.time + 300)) == ["file-hangs"]
    assert anchors(judge("1", stale, Slurm("FAILED", over=True), shot.time + 300)) == ["no-verdict"]


def after_a_failure(cause: Cause) -> Snapshot:
    talk = small()
    told = failed(1)
    talk.hear(replace(told, failures=(replace(told.failures[0], cause=cause),)))
    for rank in range(3):
        talk.hear(stopped(rank))
    return shot_of(talk)


@pytest.mark.parametrize(("cause", "rows"), [(Cause.OOM, ["out-of-memory"]), (Cause.EXIT, [])])
def test_a_failure_s_cause_for_a_while(cause: Cause, rows: list[str]) -> None:
    shot = after_a_failure(cause)
    assert shot.decision is not None and shot.decision.cause == cause.value
    assert anchors(seen(shot)) == rows
    assert anchors(seen(replace(shot, decision=replace(shot.decision, time=shot.time - RECENT)))) == []


def test_what_is_wrong_while_it_runs() -> None:
    shot = shot_of(small())
    alone = replace(shot, coordinator=replace(shot.coordinator, majority=False))
    assert anchors(seen(alone)) == ["majority-lost"]
    assert anchors(seen(replace(shot, slurm_away=True))) == ["slurm-is-away"]
    spent = tuple(replace(each, used=each.max) for each in shot.budgets)
    assert anchors(seen(replace(shot, budgets=spent))) == ["budget-spent"]
    everything = replace(alone, slurm_away=True, budgets=spent)
    assert anchors(seen(everything)) == ["majority-lost", "slurm-is-away"] and MOST == 2
    talk = small()
    talk.hear(messages.Unhealthy(0, 3, 1, Problem("disk", "health check disk failed: full")))
    assert anchors(seen(shot_of(talk))) == ["check-excludes"]

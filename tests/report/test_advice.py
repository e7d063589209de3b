"""Tests the advice of a report: found by data, and the same as in docs/3am.md."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.history.recordings import recorded
from tests.report.report_texts import report

from ft_supervisor.core.protocol.model import Again, Ending, Outcome, Verdict
from ft_supervisor.report import render_html
from ft_supervisor.report.advice import advised, markup, table, text

ROWS = (*table("over"), *table("running"))
OF_NO_ROW = {Ending.UNKNOWN, Ending.STOPPED_FOR_REQUEUE}
"""Endings about which a person need not do anything, or that say nothing."""


def test_each_ending_and_anchor_has_one_row() -> None:
    endings = [ending for row in ROWS for ending in row.endings]
    assert sorted(endings) == sorted(set(Ending) - OF_NO_ROW)
    assert len({row.anchor for row in ROWS}) == len(ROWS)
    assert all(row.see and row.means and row.do for row in ROWS)


def test_the_page_for_the_night_has_each_row_with_its_anchor() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "3am.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert f"| <a id={row.anchor}></a>{row.see} | {row.means} | {row.do} |" in page, row.anchor


@pytest.mark.parametrize(
    ("ending", "anchor"),
    [
        (Ending.TOO_FEW_NODES, "too-few-nodes"),
        (Ending.NOT_JOINED, "not-enough-nodes-came"),
        (Ending.TIME_LIMIT, "slurm-wants-the-nodes"),
    ],
)
def test_a_verdict_s_row_is_found_by_its_ending_whatever_its_reason_says(ending: Ending, anchor: str) -> None:
    verdict = Verdict(Outcome.INTERRUPTED, "10 restarts spent", Again.OPEN, ending)
    history = replace(recorded("crash"), verdict=verdict)
    assert [row.anchor for row in advised(history)] == [anchor]
    page = render_html.render(report("crash", verdict=verdict))
    assert f"(docs/3am.md#{anchor})" in page and page.index("What to do:") < page.index("What went wrong")


def test_a_success_needs_no_advice_and_a_running_job_s_last_failure_has_it() -> None:
    hung = recorded("hang")
    assert [row.anchor for row in advised(replace(hung, verdict=None))] == ["worker-hangs"]
    done = Verdict(Outcome.SUCCESS, "done", ending=Ending.TRAINED)
    assert advised(replace(hung, verdict=done)) == ()


def test_its_texts_become_plain_or_html() -> None:
    assert text("see [Jobs](slurm.md#x): `a <b>`") == "see Jobs: a <b>"
    assert markup("see [Jobs](slurm.md#x): `a <b>`") == "see Jobs: <code>a &lt;b&gt;</code>"

"""Tests the list of jobs: whether Slurm or the verdict determines a job's outcome, and how that is shown."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.ft_slurm.fake_sacct import FakeSacct, row

from ft_slurm import sacct_jobs
from ft_slurm.cli_client import CliClient
from ft_slurm.job_states import STATES
from ft_supervisor.core.protocol.model import Again, Outcome, Verdict
from ft_supervisor.core.protocol.summary import Summary, line
from ft_supervisor.report import jobs_sources, jobs_text
from ft_supervisor.report.jobs import OUTCOMES, ListedJob, join, judge
from ft_supervisor.report.jobs_sources import Listing
from ft_supervisor.report.words import zone
from ft_supervisor.run_folder import verdict_file
from ft_supervisor.run_folder.verdict_file import Content

DEFAULT = ("ft-runs/{job_id}",)


def jobs(*rows: str) -> list[ListedJob]:
    found, bad = sacct_jobs.rows("".join(rows))
    assert bad == 0
    return join(found)


def only(*rows: str) -> ListedJob:
    (job,) = jobs(*rows)
    return job


# -- by Slurm's word and the comment


@pytest.mark.parametrize(
    ("state", "code", "comment", "outcome", "contradicts"),
    [
        ("COMPLETED", "0:0", "[ft: success, 3 cycles]", "success", False),
        ("FAILED", "1:0", "[ft: success, 3 cycles]", "success", True),
        ("COMPLETED", "0:0", "[ft: failed, 3 cycles]", "failed", True),
        ("FAILED", "1:0", "mine [ft: failed] too", "failed", False),
        ("FAILED", "75:0", "[ft: interrupted, 1 cycle]", "interrupted", False),
        ("TIMEOUT", "0:0", "[ft: interrupted]", "interrupted", False),
        ("CANCELLED by 1000", "0:15", "[ft: success (step 1)]", "success", True),
        ("OUT_OF_MEMORY", "0:125", "", "failed", False),
        ("NODE_FAIL", "0:0", "", "interrupted", False),
        ("COMPLETED", "0:0", "", "success", False),
        ("FAILED", "1:0", "[ft: cycle 3 is running]", "failed", False),
        ("FAILED", "1:0", "[ft: successful]", "failed", False),
        ("RUNNING", "0:0", "[ft: success]", "running", False),
        ("PENDING", "0:0", "", "pending", False),
        ("REQUEUED", "75:0", "[ft: interrupted]", "pending", False),
        ("RESIZING", "0:0", "", "running", False),
        ("REVOKED", "0:0", "", "unknown", False),
        ("HIBERNATED", "0:0", "[ft: success]", "unknown", False),
    ],
)
def test_one_record(state: str, code: str, comment: str, outcome: str, contradicts: bool) -> None:
    job = only(row(7, state, code, Comment=comment))
    assert (job.outcome, job.contradicts) == (outcome, contradicts)
    assert job.outcome in OUTCOMES


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_an_outcome(state: str) -> None:
    assert only(row(7, state)).outcome in OUTCOMES


def test_a_job_that_lost_a_node_is_one_job() -> None:
    job = only(
        row(7, "RESIZING", Submit=100, Start=110, End=150),
        row(7, "COMPLETED", Submit=150, Start=150, End=200, Comment="[ft: success, 2 cycles]"),
    )
    assert (job.outcome, job.began, job.row.end, job.restarts) == ("success", 110, 200, 0)


def test_what_an_earlier_run_has_told_is_not_this_runs_end() -> None:
    first = row(7, "REQUEUED", "75:0", Submit=100, Start=110, End=150, Comment="[ft: interrupted, 2 cycles]")
    resized = row(7, "RESIZING", Submit=190, Start=200, End=220)
    second: dict[str, Any] = {"Submit": 220, "Start": 220, "End": 300}
    died = only(first, resized, row(7, "NODE_FAIL", Comment="[ft: interrupted, 2 cycles]", **second))
    assert (died.restarts, died.began, died.verdict, died.outcome) == (1, 200, None, "interrupted")
    told = only(first, row(7, "FAILED", "1:0", Comment="[ft: success (restart 1), 3 cycles]", **second))
    assert (told.outcome, told.contradicts) == ("success", True)
    assert told.verdict is not None and (told.verdict.restart, told.verdict.summary) == (1, "3 cycles")


def test_jobs_come_in_the_order_of_their_submission() -> None:
    assert [job.row.job_id for job in jobs(row(9, Submit=30), row(7, Submit=20), row(8, Submit=40))] == [7, 9, 8]


def test_what_the_coordinator_writes_is_what_is_read() -> None:
    for outcome in Outcome:
        text = line(Summary(3, 1, 0, ("n3",), 42.0), Verdict(outcome, "over"), "7.1.2")
        told = only(row(7, "FAILED", "1:0", Comment=f"[ft: {text}]")).verdict
        assert told is not None
        why = "" if outcome is Outcome.SUCCESS else ", over"
        assert (told.outcome, told.restart) == (outcome, 2)
        assert told.summary == f"3 cycles, 1 node replaced (n3), 42 s lost{why}"


@given(st.text(), st.sampled_from(list(STATES)))
def test_any_comment_is_read(comment: str, state: str) -> None:
    text = comment.replace("\x1f", "")
    found, _ = sacct_jobs.rows(row(7, state, Comment=f"[ft: success{text}]"))
    for job in join(found):
        assert job.outcome in OUTCOMES


# -- exit codes


@pytest.mark.parametrize(
    ("code", "derived", "comment", "wrong"),
    [
        ("0:0", "0:0", "[ft: success]", False),
        ("0:0", "0:9", "[ft: success]", True),
        ("75:0", "0:0", "[ft: interrupted]", True),
        ("75:0", "75:0", "[ft: interrupted]", False),
        ("93:0", "93:0", "[ft: failed]", False),
        ("1:0", "93:0", "[ft: failed]", True),
        ("0:0", "0:9", "", False),
    ],
)
def test_derived_exit_code_that_is_not_the_verdicts(code: str, derived: str, comment: str, wrong: bool) -> None:
    state = "COMPLETED" if code == "0:0" else "FAILED"
    assert only(row(7, state, code, DerivedExitCode=derived, Comment=comment)).wrong_code is wrong


def test_the_policy_may_keep_it_as_it_is() -> None:
    job = only(row(7, DerivedExitCode="0:9", Comment="[ft: success]"))
    kept = judge(job, Content(Verdict(Outcome.SUCCESS, "done"), "7.0.0", "", "success", exit_code=False))
    assert (job.wrong_code, kept.wrong_code) == (True, False)


# -- by the verdicts' files


def write(folder: Path, run_id: str, verdict: Verdict, summary: str = "") -> Path:
    job_id = run_id.split(".")[0]
    verdict_file.write(folder / "ft-runs" / job_id / run_id, verdict, run_id, "nonce", summary)
    return folder


def listed(*rows: str, of_all: bool = False, bound: float = 60.0) -> Listing:
    listing = Listing(jobs(*rows))
    jobs_sources.read_verdicts(listing, DEFAULT, of_all=of_all, bound=bound)
    return listing


def test_the_file_tells_where_the_comment_does_not(tmp_path: Path) -> None:
    write(tmp_path, "7.0.0", Verdict(Outcome.SUCCESS, "all workers exited with 0"))
    write(tmp_path, "8.0.0", Verdict(Outcome.FAILED, "bad", Again.NEVER), "failed, 2 cycles")
    listing = listed(
        row(7, "FAILED", "1:0", WorkDir=tmp_path),
        row(8, "COMPLETED", WorkDir=tmp_path),
        row(9, "FAILED", "1:0", WorkDir=tmp_path),
        row(10, "FAILED", "1:0", WorkDir=tmp_path / "gone", Comment="[ft: success]"),
    )
    told = [
        (job.outcome, job.contradicts, job.verdict and (job.verdict.source, job.verdict.code)) for job in listing.jobs
    ]
    assert told == [
        ("success", True, ("file", 0)),
        ("failed", True, ("file", 93)),
        ("failed", False, None),
        ("success", True, ("comment", 0)),
    ]
    assert [job.verdict.summary for job in listing.jobs[:2] if job.verdict] == ["all workers exited with 0", "2 cycles"]
    assert (listing.notes, listing.hangs) == ([], False)


def test_the_newest_run_without_a_verdict_tells_nothing(tmp_path: Path) -> None:
    write(tmp_path, "7.0.0", Verdict(Outcome.SUCCESS, "of the first run"))
    (tmp_path / "ft-runs" / "7" / "7.0.1").mkdir()
    assert listed(row(7, "FAILED", "1:0", WorkDir=tmp_path)).jobs[0].verdict is None


def test_a_file_of_another_run_is_no_verdict(tmp_path: Path) -> None:
    folder = tmp_path / "ft-runs" / "7" / "7.0.0"
    verdict_file.write(folder, Verdict(Outcome.SUCCESS, "copied here"), "6.0.0", "nonce")
    assert listed(row(7, "FAILED", "1:0", WorkDir=tmp_path)).jobs[0].verdict is None


def test_an_older_runs_file_is_not_this_runs_end(tmp_path: Path) -> None:
    write(tmp_path, "7.0.0", Verdict(Outcome.SUCCESS, "of the first run"))
    rows = (row(7, "REQUEUED", Submit=1, WorkDir=tmp_path), row(7, "FAILED", "1:0", Submit=2, WorkDir=tmp_path))
    assert listed(*rows).jobs[0].verdict is None


@pytest.mark.parametrize("work_dir", ["", "relative", "/dev/null", "/nul\0", f"/{'x' * 5000}", "/two\nlines"])
def test_folders_of_all_kinds(work_dir: str) -> None:
    listing = listed(row(7, "FAILED", "1:0", WorkDir=work_dir))
    assert listing.jobs[0].outcome == "failed"
    assert all(
        "\n" not in jobs_text.as_text(listing, "today", None).rstrip("\n").split("\n")[-1] for _ in listing.notes
    )


def test_a_file_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    for job_id in (7, 8):
        folder = tmp_path / "ft-runs" / str(job_id) / f"{job_id}.0.0"
        folder.mkdir(parents=True)
        (folder / "verdict.json").write_text("{}")
    listing = listed(row(7, "FAILED", WorkDir=tmp_path), row(8, "FAILED", WorkDir=tmp_path), row(9, WorkDir=tmp_path))
    (note,) = listing.notes
    assert note.startswith("the verdict's file cannot be read of job 7: ") and note.endswith(", and of 1 more")


def test_a_file_system_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(verdict_file, "read_all", lambda _folder: released.wait(60) and None)
    write(tmp_path, "7.0.0", Verdict(Outcome.SUCCESS, "unseen"))
    listing = listed(row(7, "FAILED", "1:0", WorkDir=tmp_path), bound=0.1)
    released.set()
    assert listing.hangs and listing.jobs[0].outcome == "failed"
    (note,) = listing.notes
    assert "does not answer within 0.1 s" in note


# -- putting exit codes right


def test_exit_codes_are_put_right(tmp_path: Path) -> None:
    rows = (
        row(7, DerivedExitCode="0:9", Comment="[ft: success]"),
        row(8, Comment="[ft: success]"),
        row(14, "FAILED", "75:0", JobID="12_3", Comment="[ft: interrupted]"),
    )
    slurm = FakeSacct(tmp_path / "slurm", *rows)
    listing = Listing(jobs(*rows))
    jobs_sources.fix_exit_codes(CliClient(slurm.environ), listing)
    assert [line.split("where ")[1] for line in slurm.asked("sacctmgr")] == [
        "jobid=7 set DerivedExitCode=0",
        "jobid=12_3 set DerivedExitCode=19200",
    ]
    text = jobs_text.as_text(listing, "today", None)
    assert "7: DerivedExitCode was 0:9, is 0:0\n12_3: DerivedExitCode was 0:0, is 75:0\n" in text
    assert "--fix-exit-codes" not in text and listing.notes == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Error with request: Access/permission denied\n", "this site does not allow it"),
        ("Connection refused\n", "trying again may help"),
    ],
)
def test_the_first_refusal_is_enough(tmp_path: Path, said: str, why: str) -> None:
    slurm = FakeSacct(tmp_path / "slurm")
    slurm.says("sacctmgr-says", said)
    wrong = {"DerivedExitCode": "0:9", "Comment": "[ft: success]"}
    listing = Listing(jobs(row(7, **wrong), row(8, **wrong)))
    jobs_sources.fix_exit_codes(CliClient(slurm.environ), listing)
    (note,) = listing.notes
    assert note.startswith(f"the DerivedExitCode of 2 jobs is not set ({why}): ")
    assert (len(slurm.asked("sacctmgr")), listing.fixed) == (1, [])


# -- for people and for programs


MANY = (
    row(7, "FAILED", "1:0", DerivedExitCode="0:9", Comment="[ft: success, 3 cycles, 1 node replaced (n3), 42 s lost]"),
    row(8, "RUNNING", End="Unknown", JobName="a name that is long\nand has\x1b[31m two lines"),
    row(14, "CANCELLED by 1000", JobID="12_3", JobName="訓練" * 20, Comment="[ft: cancelled, 2 cycles]"),
)


@pytest.mark.parametrize("width", [20, 40, 80, 109, 110, 200])
def test_every_line_fits_the_terminal(width: int) -> None:
    text = jobs_text.as_text(Listing(jobs(*MANY), ["a note " * 20]), "yesterday", width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    for word in ("! success", "running", "cancelled"):
        assert word in text


@pytest.mark.parametrize(("width", "head"), [(47, ["SLURM"]), (49, ["END"]), (56, ["END", "NAME"])])
def test_a_date_is_there_as_a_whole_or_not_at_all(width: int, head: list[str]) -> None:
    shown = jobs_text.as_text(Listing(jobs(row(7, "OUT_OF_MEMORY", "0:125"))), "yesterday", width).splitlines()
    assert shown[0].replace(f" ({zone()})", "").split()[-len(head) :] == head
    assert "…" not in shown[1]


def test_a_failed_job_has_the_beginning_of_the_reason() -> None:
    found = jobs(row(7, "FAILED", "1:0", Comment="[ft: failed, 3 cycles]"))
    reason = "rank 2 (n3, local 0): ValueError: loss is nan at step 1769, which is no good"
    verdict = Verdict(Outcome.FAILED, reason)
    judged = [judge(job, Content(verdict, "7.0.0", "n", "failed, 3 cycles")) for job in found]
    shown = jobs_text.as_text(Listing(judged), "yesterday", None).splitlines()[1]
    assert shown.endswith(f"3 cycles: {reason[:59]}…")
    assert json.loads(jobs_text.as_json(Listing(judged), "x"))["jobs"][0]["reason"] == reason


WORDS = st.text(max_size=60).map(lambda text: text.replace("\x1f", "").replace("\n", " "))


@given(WORDS, WORDS, WORDS, st.sampled_from([*STATES, "?"]), st.integers(20, 160))
def test_whatever_is_listed_fits(name: str, told: str, note: str, state: str, width: int) -> None:
    found, _ = sacct_jobs.rows(row(7, state, "1:0", JobName=name, Comment=f"[ft: success, {told}]"))
    listing = Listing(join(found), [note])
    for shown in jobs_text.as_text(listing, "today", width).splitlines():
        assert cell_len(shown) <= width
        assert shown.isprintable()
    assert json.loads(jobs_text.as_json(listing, "today"))["jobs"][0]["name"] == name


def test_in_a_pipe_each_job_is_one_whole_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    text = jobs_text.as_text(Listing(jobs(*MANY)), "yesterday", None)
    monkeypatch.undo()
    time.tzset()
    head, first, *others = text.splitlines()
    assert " ".join(head.split()) == "JOB OUTCOME SLURM END (UTC) NAME SUMMARY"
    expected = "7 ! success FAILED 1:0 01-01 00:18 train 3 cycles, 1 node replaced (n3), 42 s lost"
    assert " ".join(first.split()) == expected
    assert others[2:] == [
        "!: Slurm says otherwise (1 of 3 jobs)",
        "2 jobs have a DerivedExitCode that is not the verdict's (--fix-exit-codes)",
    ]


def test_nothing_to_list() -> None:
    assert jobs_text.as_text(Listing([]), "yesterday", 80) == "no such jobs since yesterday\n"


def test_json() -> None:
    value = json.loads(jobs_text.as_json(Listing(jobs(*MANY), ["one"]), "yesterday"))
    assert (value["version"], value["since"], value["notes"], value["fixed"]) == (1, "yesterday", ["one"], [])
    assert value["jobs"][0] == {
        "job": "7",
        "job_id": 7,
        "name": "train",
        "work_dir": "/nonexistent",
        "outcome": "success",
        "source": "comment",
        "exit_code": 0,
        "summary": "3 cycles, 1 node replaced (n3), 42 s lost",
        "reason": "",
        "contradicts": True,
        "restarts": 0,
        "slurm": {
            "state": "FAILED",
            "exit_code": "1:0",
            "derived_exit_code": "0:9",
            "start": 1010,
            "end": 1100,
            "nodes": "n[0-3]",
        },
    }
    assert [(job["job"], job["job_id"], job["outcome"], job["source"]) for job in value["jobs"][1:]] == [
        ("8", 8, "running", "slurm"),
        ("12_3", 14, "cancelled", "comment"),
    ]

"""Tests the list of a user's jobs on sacct's output, valid and invalid."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ft_slurm.fake_sacct import USER, FakeSacct, row

from ft_slurm.cli_client import CliClient
from ft_slurm.errors import Refused, Unanswered
from ft_slurm.records import ExitCode, JobRow
from ft_slurm.sacct_jobs import SEPARATOR, BadTime, rows, since

NOON = datetime(2026, 3, 1, 12)


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSacct:
    return FakeSacct(tmp_path / "slurm", row(7), row(8, "FAILED", "1:0"))


def test_rows(slurm: FakeSacct) -> None:
    (one, two), bad = CliClient(slurm.environ).jobs_since("2026-01-31", USER)
    assert bad == 0
    assert one == JobRow(
        7,
        "7",
        "COMPLETED",
        ExitCode(0, 0),
        ExitCode(0, 0),
        1000,
        1010,
        1100,
        USER,
        "n[0-3]",
        "train",
        "/nonexistent",
        "",
    )
    assert (two.job_id, two.state, two.exit_code) == (8, "FAILED", ExitCode(1, 0))
    (line,) = slurm.asked()
    assert line.startswith("sacct --starttime=2026-01-31 --endtime=now --user=1000 --allocations --duplicates ")


def test_odd_rows() -> None:
    text = (
        row(7, "CANCELLED by 1000", End="Unknown", Start="None", NodeList="None assigned")
        + row(12, "PENDING", JobID="12_[4-9%2]", Start="Unknown", End="Unknown")
        + row(13, JobID="12+1", UID="")
    )
    (one, two, three), bad = rows(text)
    assert (one.state, one.start, one.end, one.nodes) == ("CANCELLED by 1000", None, None, "")
    assert (two.job_id, two.name, two.start) == (12, "12_[4-9%2]", None)
    assert (three.name, three.user_id, bad) == ("12+1", None, 0)


@pytest.mark.parametrize(
    "text", ["two\nlines", "a \"b\" 'c' | d", "ü \u202e", "7\n8|9", "", "\n\nx", "12345\n678|COMPLETED|"]
)
def test_names_folders_and_comments_may_hold_anything(text: str) -> None:
    printed = row(7, JobName=text, WorkDir=f"/{text}", Comment=f"{text}[ft: success]") + row(8)
    (one, two), bad = rows(printed)
    assert (one.job_name, one.work_dir, one.comment) == (text, f"/{text}", f"{text}[ft: success]")
    assert (two.job_id, bad) == (8, 0)


def test_what_makes_no_sense_is_counted_and_the_rest_is_read() -> None:
    printed = (
        "sacct: warning\n" + row(7) + row(8, code="none") + row(9, Submit="soon") + f"10{SEPARATOR}10{SEPARATOR}\n"
    )
    found, bad = rows(printed)
    assert ([each.job_id for each in found], bad) == ([7], 4)


PIECES = st.one_of(
    st.sampled_from([SEPARATOR, "\n", f"7{SEPARATOR}7{SEPARATOR}", row(7), row(8)[:40], "0:0", "9" * 5000, "٣", "\0"]),
    st.text(max_size=9),
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_whatever_is_printed_is_read_or_counted(text: str) -> None:
    found, bad = rows(text)
    assert bad >= 0
    assert all(each.job_id >= 0 for each in found)


@given(st.text(), st.text(), st.text())
def test_nobodys_words_change_other_fields(name: str, work_dir: str, comment: str) -> None:
    clean = [text.replace(SEPARATOR, "").replace("\n", " ") for text in (name, work_dir, comment)]
    printed = row(7, JobName=clean[0], WorkDir=clean[1], Comment=clean[2]) + row(8)
    (one, two), bad = rows(printed)
    assert [one.job_name, one.work_dir, one.comment] == clean
    assert (one.state, two.job_id, bad) == ("COMPLETED", 8, 0)


# -- the time


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("yesterday", "2026-02-28"),
        ("Yesterday ", "2026-02-28"),
        ("today", "today"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T12:00:30", "2026-01-31T12:00:30"),
        ("now-3days", "now-3days"),
        ("01/31", "01/31"),
        ("14:30", "14:30"),
    ],
)
def test_times_that_sacct_understands(word: str, meant: str) -> None:
    assert since(word, NOON) == meant


@pytest.mark.parametrize("word", ["", " ", "-1", "a;b", "x" * 100, "new\nline", "'", "$(id)", "\0", "--help"])
def test_times_that_are_none(word: str) -> None:
    with pytest.raises(BadTime, match=r"^[^\n]* is no time: give yesterday, [^\n]*$"):
        since(word, NOON)


@pytest.mark.parametrize(
    "said",
    [
        "Invalid time specification (pos=0): fortnight\n",
        "sacct: error: Start time (2030-01-01T00:00:00) requested is after end time (2026-01-01T00:00:00).\n",
    ],
)
def test_times_that_sacct_does_not_take(slurm: FakeSacct, said: str) -> None:
    slurm.says("sacct-says", said)
    with pytest.raises(BadTime, match=r"^--since fortnight: [^\n]*$"):
        CliClient(slurm.environ).jobs_since("fortnight", USER)


# -- sacct that does not answer


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Slurm accounting storage is disabled\n", Refused),
        ("sacct: error: Problem talking to the database: Connection refused\n", Unanswered),
        ("sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection\n", Unanswered),
        ("", Unanswered),
    ],
)
def test_sacct_that_has_nothing_to_say(slurm: FakeSacct, said: str, error: type[Exception]) -> None:
    slurm.says("sacct-says", said)
    with pytest.raises(error, match=r"^sacct: [^\n]+$"):
        CliClient(slurm.environ).jobs_since("today", USER)


def test_sacct_that_is_slow_or_missing(slurm: FakeSacct) -> None:
    slurm.says("hang")
    began = time.monotonic()
    with pytest.raises(Unanswered, match=r"has not answered within 0\.3 s"):
        CliClient(slurm.environ).jobs_since("today", USER, timeout=0.3)
    assert time.monotonic() - began < 30
    client = CliClient({"PATH": str(slurm.bin)})
    (slurm.bin / "sacct").unlink()
    with pytest.raises(Refused, match="there is no sacct in PATH"):
        client.jobs_since("today", USER)


def test_no_jobs(slurm: FakeSacct) -> None:
    slurm.rows()
    assert CliClient(slurm.environ).jobs_since("today", USER) == ([], 0)


def test_other_peoples_jobs_are_not_meant(slurm: FakeSacct) -> None:
    slurm.rows(row(7), row(8, UID=1001))
    found, _ = CliClient(slurm.environ).jobs_since("today", USER)
    assert [each.job_id for each in found] == [7]


# -- DerivedExitCode


def test_derived_exit_code_is_a_wait_status(slurm: FakeSacct) -> None:
    earlier = row(7, "REQUEUED", DerivedExitCode="3:0", Submit=900)
    slurm.rows(row(7, DerivedExitCode="0:9"), earlier, row(15, JobID="12_3", DerivedExitCode="0:9"))
    client = CliClient(slurm.environ)
    client.set_derived_exit_code("12_3", 75)
    client.set_derived_exit_code("7", 0)
    assert slurm.asked("sacctmgr") == [
        "sacctmgr --immediate modify job where jobid=12_3 set DerivedExitCode=19200",
        "sacctmgr --immediate modify job where jobid=7 set DerivedExitCode=0",
    ]


@pytest.mark.parametrize("release", ["old", "new"])
@pytest.mark.parametrize(
    ("said", "error"),
    [
        (" Error with request: Access/permission denied\n", Refused),
        (" Error with request: Data has not changed since time specified\n", Refused),
        ("sacctmgr: error: slurmdbd: Sending PersistInit msg: Connection refused\n", Unanswered),
        ("", Unanswered),
    ],
)
def test_derived_exit_code_that_does_not_change(
    slurm: FakeSacct, release: str, said: str, error: type[Exception]
) -> None:
    """Since 25.05 sacctmgr prints "Modified jobs" even then."""
    slurm.says(release)
    slurm.says("sacctmgr-says", said)
    with pytest.raises(error, match=r"^sacctmgr modify job 7: [^\n]+$"):
        CliClient(slurm.environ).set_derived_exit_code("7", 0)


@pytest.mark.parametrize(("rows", "has"), [((row(7, DerivedExitCode="0:9"),), "0:9"), ((row(8),), "no such job")])
def test_change_that_is_not_in_the_database(slurm: FakeSacct, rows: tuple[str, ...], has: str) -> None:
    slurm.rows(*rows)
    slurm.says("lost")
    with pytest.raises(Unanswered, match=rf"^sacctmgr modify job 7: [^\n]+ the database has {has}$"):
        CliClient(slurm.environ).set_derived_exit_code("7", 0)


def test_database_that_does_not_tell_what_it_has(slurm: FakeSacct) -> None:
    slurm.says("sacct-says", "sacct: error: Problem talking to the database: Connection refused\n")
    with pytest.raises(Unanswered, match=r"^sacct: .*Connection refused$"):
        CliClient(slurm.environ).set_derived_exit_code("7", 0)

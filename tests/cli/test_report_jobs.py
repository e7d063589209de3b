"""`ft-supervisor report --since` as a user types it, with stand-ins for Slurm's commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.ft_slurm.fake_sacct import FakeSacct, row

from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.run_folder import run_index, verdict_file

BOUND = 120.0
ME = os.getuid()
FAILED = row(8, "FAILED", "1:0", UID=ME)
PYTHONPATH = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSacct:
    told = "mine [ft: success, 3 cycles, 1 node replaced (n3), 42 s lost]"
    return FakeSacct(tmp_path / "slurm", row(7, "FAILED", "1:0", UID=ME, DerivedExitCode="0:9", Comment=told), FAILED)


def report(slurm: FakeSacct, *options: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SACCT"))}
    return subprocess.run(
        [sys.executable, "-m", "ft_supervisor", "report", *options],
        env={**kept, "PATH": path or slurm.environ["PATH"], "PYTHONPATH": PYTHONPATH},
        cwd=slurm.folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=BOUND,
    )


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_list(slurm: FakeSacct) -> None:
    done = report(slurm, "--since", "yesterday")
    assert (done.returncode, done.stderr) == (0, "")
    _, first, second, *_ = lines(done)
    assert first.startswith("7 ! success FAILED 1:0 ") and first.endswith("1 node replaced (n3), 42 s lost")
    assert second.startswith("8 failed FAILED 1:0 ")
    (asked,) = slurm.asked()
    assert f"--user={ME} " in asked and "--starttime=20" in asked


def test_state_is_the_true_one(slurm: FakeSacct) -> None:
    done = report(slurm, "--since", "now-3days", "--state", "failed, Interrupted", "--json")
    assert done.returncode == 0
    value = json.loads(done.stdout)
    assert [(job["job"], job["outcome"]) for job in value["jobs"]] == [("8", "failed")]
    assert (value["version"], value["since"]) == (1, "now-3days")


def test_none_of_that_kind(slurm: FakeSacct) -> None:
    done = report(slurm, "--since", "today", "--state", "running")
    assert (done.returncode, done.stdout) == (0, "no such jobs since today\n")


@pytest.mark.parametrize("options", [[], ["--config", "job.yaml"], ["--run-dir", "elsewhere"]])
def test_where_the_verdicts_lie(slurm: FakeSacct, options: list[str]) -> None:
    where = {"": "ft-runs/8", "--config": "mine-8", "--run-dir": "elsewhere/8"}[options[0] if options else ""]
    text = "name: x\ncluster: none\nnodes: {active: 1}\nworkers: {per_node: 1}\nrun_dir: 'mine-{job_id}'\n"
    (slurm.folder / "job.yaml").write_text(text)
    slurm.rows(row(8, "FAILED", "1:0", UID=ME, WorkDir=slurm.folder))
    verdict_file.write(slurm.folder / where / "8.0.0", Verdict(Outcome.SUCCESS, "trained"), "8.0.0", "nonce")
    done = report(slurm, "--since", "today", *options)
    assert done.returncode == 0, done.stderr
    line = lines(done)[1]
    assert line.startswith("8 ! success ") and line.endswith("trained")


def test_the_index_knows_a_run_dir_of_ones_own(slurm: FakeSacct, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(slurm.folder / "state"))
    slurm.rows(row(8, "FAILED", "1:0", UID=ME, WorkDir="/"))
    verdict_file.write(slurm.folder / "mine/8.0.0", Verdict(Outcome.SUCCESS, "trained"), "8.0.0", "nonce")
    run_index.note(os.environ, "cluster", run_index.IndexEntry(8, slurm.folder / "mine"))
    assert lines(report(slurm, "--since", "today"))[1].startswith("8 ! success ")
    named = report(slurm, "--since", "today", "--run-dir", "elsewhere")
    assert lines(named)[1].startswith("8 failed "), "an option says where, and there alone it is looked for"


def test_exit_codes_are_put_right(slurm: FakeSacct) -> None:
    done = report(slurm, "--since", "today", "--state", "success", "--fix-exit-codes")
    assert done.returncode == 0
    assert "7: DerivedExitCode was 0:9, is 0:0" in lines(done)
    assert slurm.asked("sacctmgr") == ["sacctmgr --immediate modify job where jobid=7 set DerivedExitCode=0"]


def test_exit_codes_that_nobody_may_change(slurm: FakeSacct) -> None:
    slurm.says("sacctmgr-says", " Error with request: Access/permission denied\n")
    done = report(slurm, "--since", "today", "--fix-exit-codes")
    assert (done.returncode, done.stderr) == (4, "")
    assert "permission denied" in lines(done)[-1]


def test_exit_codes_that_the_policy_keeps(slurm: FakeSacct) -> None:
    slurm.rows(row(7, UID=ME, DerivedExitCode="0:9", Comment="[ft: success]", WorkDir=slurm.folder))
    folder = slurm.folder / "ft-runs/7/7.0.0"
    verdict_file.write(folder, Verdict(Outcome.SUCCESS, "trained"), "7.0.0", "nonce", exit_code=False)
    assert report(slurm, "--since", "today", "--fix-exit-codes").returncode == 0
    assert slurm.asked("sacctmgr") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "last week;"], "is no time: give yesterday"),
        (["--since", ""], "is no time"),
        (["--since", "today", "--state", "victorious"], "--state: 'victorious' is not one of success, failed,"),
        (["--since", "today", "--state", ""], "--state: '' is not one of"),
        (["--since", "today", "--brief"], "neither JOB nor --brief"),
        (["7", "--since", "today"], "neither JOB nor --brief"),
        (["--state", "failed"], "go with --since"),
        (["--fix-exit-codes"], "go with --since"),
        (["--since", "today", "--config", "none.yaml"], "none.yaml"),
        (["--since", "today", "--config", "a", "--run-dir", "b"], "either --config or --run-dir"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_2(slurm: FakeSacct, options: list[str], said: str) -> None:
    done = report(slurm, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and said in done.stderr
    assert slurm.asked() == []


def test_a_time_that_sacct_does_not_take(slurm: FakeSacct) -> None:
    slurm.says("sacct-says", "Invalid time specification (pos=0): fortnight\n")
    done = report(slurm, "--since", "fortnight")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("said", ["Slurm accounting storage is disabled\n", "Connection refused\n"])
def test_accounting_that_is_disabled_or_away(slurm: FakeSacct, said: str) -> None:
    slurm.says("sacct-says", said)
    done = report(slurm, "--since", "today")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"ft-supervisor: sacct: {said}"


def test_no_slurm_here(slurm: FakeSacct, tmp_path: Path) -> None:
    done = report(slurm, "--since", "today", path=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        3,
        "ft-supervisor: there is no scontrol in PATH: run this on a login node; runs of `local` are in "
        "`ft-supervisor list`\n",
    )
    (slurm.bin / "sacct").unlink()
    done = report(slurm, "--since", "today", path=str(slurm.bin))
    assert (done.returncode, done.stderr) == (3, "ft-supervisor: there is no sacct in PATH\n")


def test_a_reader_who_has_had_enough(slurm: FakeSacct) -> None:
    slurm.rows(*(row(number, UID=ME) for number in range(1, 3000)))
    environ = {**os.environ, "PATH": slurm.environ["PATH"], "PYTHONPATH": PYTHONPATH}
    process = subprocess.Popen(
        [sys.executable, "-m", "ft_supervisor", "report", "--since", "today"],
        env={key: value for key, value in environ.items() if not key.startswith(("SLURM", "SACCT"))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    try:
        assert process.wait(BOUND) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.stderr.close()


def test_a_month_of_jobs_is_soon_listed(slurm: FakeSacct) -> None:
    slurm.rows(*(row(number, "FAILED", "1:0", UID=ME, WorkDir=slurm.folder) for number in range(1, 5000)))
    began = time.monotonic()
    done = report(slurm, "--since", "now-30days", "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)["jobs"]) == 4999
    assert time.monotonic() - began < 60


def a_job_with_journals(slurm: FakeSacct, name: str = "7.0.0") -> None:
    """Put a recorded run of job 7, which took 13 s, below `runs`, and Slurm's record of it."""
    from tests.history.recordings import RECORDED, recorded

    start = int(recorded("crash").start or 0)
    shutil.copytree(RECORDED / "crash/4242.0.0", slurm.folder / "runs" / name)
    mine = row(7, UID=ME, JobID="123_4", Submit=start - 100, Start=start, End=start + 60)
    slurm.rows(mine, FAILED)


def test_the_ratio_of_jobs_and_what_was_lost(slurm: FakeSacct) -> None:
    a_job_with_journals(slurm)
    done = report(slurm, "--since", "30d", "--run-dir", "runs", "--save", "0.01", "--every", "60")
    assert (done.returncode, done.stderr) == (0, "")
    told = lines(done)
    assert told[0].startswith("JOB OUTCOME SLURM ETTR END (") and told[2].startswith("123_4 success COMPLETED <")
    text = "\n".join(told)
    assert (
        "effective training time ratio at most " in text and " of 2 min 40 s in 1 job (1 more without journals)" in text
    )
    assert "queued 1 min 40 s" in text and "lost by cause: exit " in text and "lost by node: node1 " in text
    assert "1 failure, one in " in text and "a checkpoint costs 10 ms; best every " in text
    assert text.endswith(" won")


def test_the_account_as_json(slurm: FakeSacct) -> None:
    a_job_with_journals(slurm)
    value = json.loads(report(slurm, "--since", "30d", "--json", "--run-dir", "runs").stdout)["efficiency"]
    one = value["jobs"]["7"]
    assert one == value["all"], "the other job has no journals"
    assert one["failures"] == 1 and 0 < one["ettr"] <= 1 and not one["exact"]
    assert sum(one["parts"].values()) == pytest.approx(one["available"], abs=0.01) == pytest.approx(160, abs=1)
    assert one["checkpoints"] == {"number": 0, "cost": None, "every": None} and one["interval"] is None
    assert value["jobs"]["8"]["ettr"] is None and value["jobs"]["8"]["parts"] is None


def test_the_page_of_many_jobs(slurm: FakeSacct) -> None:
    a_job_with_journals(slurm)
    done = report(slurm, "--since", "30d", "--run-dir", "runs", "--html", "jobs.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "jobs.html\n", "")
    page = (slurm.folder / "jobs.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "123_4" in page and "Lost by cause" in page
    done = report(slurm, "--since", "30d", "--html", "nowhere/jobs.html")
    assert done.returncode == 2 and "nowhere" in done.stderr


def test_journals_that_cannot_be_read_are_a_note(slurm: FakeSacct) -> None:
    a_job_with_journals(slurm)
    (slurm.folder / "runs/8").write_text("")
    journals = slurm.folder / "runs/7.0.0/journal"
    shutil.rmtree(journals)
    journals.write_text("no folder")
    done = report(slurm, "--since", "30d", "--run-dir", "runs")
    assert "effective training time" not in done.stdout and "ETTR" not in done.stdout
    assert done.returncode in (0, 4), done


def test_the_options_of_checkpoints_go_with_since(slurm: FakeSacct) -> None:
    done = report(slurm, "--save", "3")
    assert done.returncode == 2 and "go with --since" in done.stderr
    assert report(slurm, "--since", "30d", "--ettr").returncode == 2, "it is shown without an option"

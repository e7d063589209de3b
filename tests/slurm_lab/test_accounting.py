"""What Slurm's accounting tells of a job afterwards: its comment, its derived exit code, and the list of jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.slurm_lab.conftest import QUICK_REQUEUE, STANDARD
from tests.slurm_lab.jobs import JOB, TRAPS, submit

from slurm_lab import LAB_USER, JobRecord, Lab

BOUND = 180.0
"""Seconds for everything that is waited for, on a machine that does other things too."""
PROGRAM = Path(sys.prefix) / "bin/ft-supervisor"
PACKAGE = Path(__file__).resolve().parents[2] / "slurm"
REQUEUE = f"{JOB}policy:\n  failures: [{{match: {{signal: SIGKILL}}, action: stop_for_requeue}}]\n"

STEP_FAILS = (
    "srun sh -c 'exit 3'\n"
    "until sacct --noheader --parsable2 -j $SLURM_JOB_ID.0 --format=ExitCode | grep -qx 3:0; do sleep 0.2; done\n"
    "exit 0"
)
"""Its DerivedExitCode is 3:0. 22.05 now and then forgets a step whose end comes at the same moment as the script's."""


def report(lab: Lab, *options: str, cwd: str | Path = "/tmp") -> subprocess.CompletedProcess[str]:
    """`ft-supervisor report` of the unprivileged user."""
    return lab.run([str(PROGRAM), "report", *options], user=LAB_USER, cwd=cwd, check=False)


def listed(lab: Lab, job: int, *options: str) -> dict[str, Any]:
    """The job, as the list of today's jobs has it; 22.05's database learns some seconds late when a short job began."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        done = report(lab, "--since", "yesterday", "--json", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        found[:] = [each for each in json.loads(done.stdout)["jobs"] if each["job_id"] == job]
        return bool(found)

    until("the job in the list", look)
    (one,) = found
    return one


def until(what: str, done: Callable[[], object]) -> None:
    end = time.monotonic() + BOUND
    while not done():
        assert time.monotonic() < end, f"{what}: not within {BOUND:.0f} s"
        time.sleep(0.2)


def derived(lab: Lab, job: JobRecord, code: str) -> None:
    """Waits for the database: it learns of a change, and on 22.05 of a short job's steps, later than of the end."""
    until(f"DerivedExitCode {code}", lambda: (lab.sacct(job.job_id) or job).derived_exit_code == code)


def batch(lab: Lab, script: str, *options: str, user: str = LAB_USER) -> JobRecord:
    """A job that needs nothing of ours, once it has ended."""
    job = lab.submit(f"#!/bin/sh\n{script}\n", "--output=/dev/null", *options, user=user, cwd="/tmp")
    return lab.wait_job(job, BOUND)


def test_node_death_is_told_and_the_users_comment_stays(lab: Lab) -> None:
    job = submit(lab, "told", options=("--comment=by 'the' user: \"x\"",))
    job.train()
    job.kill_node("n1", noticed=True)
    job.ends("COMPLETED", "0:0")
    record = lab.sacct(job.id)
    assert record is not None
    part = r"\[ft: success, 2 cycles, 1 node replaced \(n1\), [0-9]+ s lost\]"
    assert re.fullmatch(rf"by 'the' user: \"x\" {part}", record.comment), record.comment
    assert job.output.count("event=comment_written") == 1
    assert (job.verdict() or {})["summary"] in record.comment
    found = listed(lab, job.id)
    assert (found["outcome"], found["source"], found["contradicts"]) == ("success", "comment", False)
    assert found["slurm"]["state"] == "COMPLETED"  # one job, although RESIZING has a record of its own

    # 0:9 since 23.02 (docs/internals/slurm.md); the owner puts it right, and there is nothing to put right then.
    done = report(lab, "--since", "today", "--fix-exit-codes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (f"{job.id}: DerivedExitCode was" in done.stdout) == (record.derived_exit_code != "0:0")
    until("the database", lambda: (lab.sacct(job.id) or record).derived_exit_code == "0:0")
    assert f"{job.id}: DerivedExitCode" not in report(lab, "--since", "today", "--fix-exit-codes").stdout


@pytest.mark.slow
def test_each_run_of_a_requeued_job_tells_its_own_end(release_lab: Lab) -> None:
    lab = release_lab
    lab.renew(replace(STANDARD, conf_lines=QUICK_REQUEUE))
    job = submit(lab, "told-requeue", config=REQUEUE, options=("--requeue", "--comment=mine", "--open-mode=append"))
    job.train()
    os.kill(job.worker("n1").pid, signal.SIGKILL)
    job.ends("COMPLETED", "0:0")
    fields = ["--noheader", "--parsable2", "--delimiter=\x1f", "--format=State,Comment"]
    rows = lab.run(["sacct", "-X", "--duplicates", "-j", str(job.id), *fields]).stdout.splitlines()
    told = dict(row.split("\x1f", 1) for row in rows)
    assert re.fullmatch(r"mine \[ft: interrupted, 1 cycle[^\]]*\]", told["REQUEUED"]), told
    assert re.fullmatch(r"mine \[ft: success \(restart 1\), 1 cycle[^\]]*\]", told["COMPLETED"]), told
    found = listed(lab, job.id)
    assert (found["outcome"], found["restarts"], found["contradicts"]) == ("success", 1, False)


def test_cancelled(lab: Lab) -> None:
    """Workers have their grace, get one signal, and exit with 0: no success."""
    job = submit(lab, "told-cancelled", within=TRAPS)
    job.train()
    lab.run(["scancel", str(job.id)])
    job.ends("CANCELLED", "0:0")
    job.check_codes(130)
    assert (job.verdict() or {})["outcome"] == "cancelled"
    assert job.signals() == dict.fromkeys(("n0", "n1", "n2"), "SIGTERM")
    found = listed(lab, job.id)
    assert (found["outcome"], found["contradicts"]) == ("cancelled", False)
    assert job.output.count("does not tell how it ended") == 0


def test_slurm_says_otherwise(lab: Lab) -> None:
    """As a script does that ends with srun after a node's death, and one that always ends in `exit 0`."""
    failed = batch(lab, "exit 1", "--comment=[ft: success, 3 cycles]")
    completed = batch(lab, "exit 0", "--comment=mine [ft: failed, 2 cycles]")
    assert (failed.state, completed.state) == ("FAILED", "COMPLETED")
    assert [listed(lab, each.job_id)["contradicts"] for each in (failed, completed)] == [True, True]
    lines = report(lab, "--since", "today", "--state", "success,failed").stdout.splitlines()
    shown = {words[0]: " ".join(words[1:4]) for line in lines if (words := line.split())}
    assert shown[str(failed.job_id)] == "! success FAILED"
    assert shown[str(completed.job_id)] == "! failed COMPLETED"
    assert any(re.match(r"!: Slurm says otherwise \([0-9]+ of [0-9]+ jobs\)", line) for line in lines)


def test_owner_changes_the_derived_exit_code_and_nobody_elses(lab: Lab) -> None:
    mine = batch(lab, STEP_FAILS, "--comment=[ft: success, 1 cycle]")
    others = batch(lab, STEP_FAILS, "--comment=[ft: success, 1 cycle]", user="root")
    derived(lab, mine, "3:0")
    derived(lab, others, "3:0")
    assert listed(lab, mine.job_id)["outcome"] == "success"
    done = report(lab, "--since", "today", "--fix-exit-codes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{mine.job_id}: DerivedExitCode was 3:0, is 0:0" in done.stdout.splitlines()
    derived(lab, mine, "0:0")
    derived(lab, others, "3:0")
    code = f"""
import os, sys
sys.path.insert(0, {str(PACKAGE)!r})
from ft_slurm.cli_client import CliClient
from ft_slurm.errors import SlurmError
client = CliClient(os.environ)
try: client.set_derived_exit_code("{others.job_id}", 0)
except SlurmError as error: print(type(error).__name__)
client.set_derived_exit_code("{mine.job_id}", 75)
"""
    assert lab.run([sys.executable, "-c", code], user=LAB_USER).stdout.strip() == "Refused"
    derived(lab, mine, "75:0")


@pytest.mark.slow
def test_one_task_of_an_array(lab: Lab) -> None:
    script = 'srun sh -c "exit $SLURM_ARRAY_TASK_ID"; exit 0'
    array = lab.submit(f"#!/bin/sh\n{script}\n", "--array=1-2", "--output=/dev/null", user=LAB_USER, cwd="/tmp")

    def codes() -> dict[str, str]:
        fields = ["--noheader", "--parsable2", "--format=JobID,State,DerivedExitCode"]
        rows = lab.run(["sacct", "-X", "-j", str(array), *fields]).stdout.splitlines()
        return {name: code for name, state, code in (row.split("|") for row in rows) if state == "COMPLETED"}

    # Which code the database has for them is another matter: 22.05 may learn of the batch script's end first.
    until("the end of both", lambda: codes().keys() == {f"{array}_1", f"{array}_2"})
    before = codes()
    code = f"import os, sys; sys.path.insert(0, {str(PACKAGE)!r}); from ft_slurm.cli_client import CliClient; "
    code += f"CliClient(os.environ).set_derived_exit_code('{array}_2', 75)"
    lab.run([sys.executable, "-c", code], user=LAB_USER)
    until("the database", lambda: codes() == before | {f"{array}_2": "75:0"})
    done = json.loads(report(lab, "--since", "yesterday", "--json").stdout)
    assert {f"{array}_1", f"{array}_2"} <= {job["job"] for job in done["jobs"]}


@pytest.mark.slow
def test_names_and_comments_of_all_kinds(lab: Lab) -> None:
    record = batch(lab, "true", "--job-name=a|b\nc 'd' ü", "--comment=two\nlines [ft: success, 1 cycle] | x")
    found = listed(lab, record.job_id)
    assert (found["name"], found["outcome"], found["source"]) == ("a|b\nc 'd' ü", "success", "comment")
    assert found["work_dir"] == "/tmp"


@pytest.mark.slow
@pytest.mark.parametrize("word", ["yesterday", "today", "2026-01-31", "now-3days", "midnight", "now-2hours"])
def test_times_that_sacct_understands(lab: Lab, word: str) -> None:
    done = report(lab, "--since", word)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("word", ["fortnight", "2026-13-45", "now+3days"])
def test_times_that_it_does_not(lab: Lab, word: str) -> None:
    done = report(lab, "--since", word)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr


@pytest.mark.slow
def test_slurmdbd_is_away(lab: Lab) -> None:
    lab.stop_daemon("slurmdbd")
    try:
        done = report(lab, "--since", "today")
    finally:
        lab.start_daemon("slurmdbd")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("ft-supervisor: sacct") and done.stderr.count("\n") == 1
    until("slurmdbd", lambda: report(lab, "--since", "today").returncode == 0)

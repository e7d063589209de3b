"""The batch host dies, and `ft_slurm.completion` ends its job on a real Slurm: what sacct says then.

Each task of the one step waits for a file and ends with 0, but for n2's: it then calls `complete`, as the job's
unprivileged owner.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_lab import LAB_USER, JobRecord, Lab

ONCE = pytest.mark.usefixtures("default_release")
BOUND = 180.0
"""Seconds for everything that is waited for, on a machine that does other things too."""
WAITING = "waiting_to_complete_job"
PACKAGE = Path(__file__).resolve().parents[2] / "slurm"

TASK = """\
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {package!r})
from ft_slurm import completion
here, node = Path({folder!r}), os.environ["SLURMD_NODENAME"]
(here / f"started-{{node}}").touch()
while not (here / "go").exists():
    time.sleep(0.05)
if node == "n2":
    def log(event, level="info", **fields):
        with (here / "log").open("a") as file:
            print(json.dumps({{"event": event, "level": level, **fields}}), file=file, flush=True)
    completion.PAUSE = 0.5
    os.environ.update({environ!r})
    job, step = int(os.environ["SLURM_JOB_ID"]), int(os.environ["SLURM_STEP_ID"])
    outcome = completion.complete(job, step, {code}, restart_count=0, log=log)
    log("outcome", outcome=outcome)
"""
SRUN = "srun --no-kill --kill-on-bad-exit=0 --wait=0 --overlap"


@dataclass
class Case:
    """One job's folder, and what n2's task wrote there."""

    lab: Lab
    folder: Path
    job: int = 0

    def wait(self, what: str, done: Callable[[], object]) -> None:
        end = time.monotonic() + BOUND
        while not done():
            assert time.monotonic() < end, f"{what}: not within {BOUND:.0f} s\n{self.lines()}"
            time.sleep(0.1)

    def wait_for(self, *names: str) -> None:
        """Waits until the tasks there have started."""
        self.wait(f"tasks on {names}", lambda: all((self.folder / f"started-{name}").exists() for name in names))

    def go(self) -> None:
        """The tasks end."""
        (self.folder / "go").touch()

    def lines(self) -> list[dict[str, Any]]:
        path = self.folder / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def waits(self, why: str) -> None:
        """Waits for the line that says what the job is not ended for."""
        self.wait(why, lambda: any(why in line["why"] for line in self.lines() if line["event"] == WAITING))

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]

    def kill_batch_host(self, *, noticed: bool) -> None:
        """`noticed`: an administrator's monitoring tells Slurm at once.

        The database names a job's records by the second in which they began: where it did not have the job's start
        before the second in which a node is lost, it gets no record of the job's end (measured, 24.11 and 22.05).
        """
        self.wait("the job's start in the database", self._start_is_known)
        known = int(time.time())
        self.wait("that second to be over", lambda: int(time.time()) > known)
        self.lab.kill_node("n0")
        if noticed:
            self.lab.run(["scontrol", "update", "nodename=n0", "state=down", "reason=dead"])

    def _start_is_known(self) -> bool:
        record = self.lab.sacct(self.job)
        return record is not None and (record.state, record.nodes) == ("RUNNING", "n[0-3]")

    def ends(self, state: str, exit_code: str) -> JobRecord:
        """Waits for the end by sacct's newest record, and until nothing of the job runs any more."""
        record = self.lab.wait_job(self.job, BOUND)
        assert (record.state, record.exit_code) == (state, exit_code), self.lines()
        living = [name for name in ("n0", "n1", "n2", "n3") if name in self.lab.machines()]
        self.wait("the nodes to be empty", lambda: not any(map(self.lab.node_processes, living)))
        return record


def prepare(lab: Lab, name: str, *, code: int = 0, environ: dict[str, str] | None = None) -> tuple[Case, str]:
    """A fresh folder with the task's program, and the srun line that starts it."""
    folder = lab.work_dir(f"completion-{name}", LAB_USER)
    for old in folder.iterdir():
        old.unlink()
    task = TASK.format(package=str(PACKAGE), folder=str(folder), code=code, environ=environ or {})
    (folder / "task.py").write_text(task)
    return Case(lab, folder), f"{SRUN} --nodes=4 --ntasks=4 {shlex.join([sys.executable, str(folder / 'task.py')])}"


def submit(lab: Lab, name: str, *options: str, before: str = "", after: str = "wait; exit 9", **task: Any) -> Case:
    """The tasks on four nodes under a batch script; returns when they run."""
    case, srun = prepare(lab, name, **task)
    script = f"#!/bin/sh\n{before}\n{srun} &\n{after}\n"
    case.job = lab.submit(script, "--nodes=4", "--no-kill", *options, "--output=out", user=LAB_USER, cwd=case.folder)
    case.wait_for("n0", "n1", "n2", "n3")
    return case


@pytest.mark.parametrize(("code", "state"), [(0, "COMPLETED"), (1, "FAILED"), (75, "FAILED")])
def test_batch_host_dies(lab: Lab, code: int, state: str) -> None:
    case = submit(lab, "dies", code=code)
    case.kill_batch_host(noticed=True)
    case.go()
    record = case.ends(state, f"{code}:0")
    assert record.nodes == "n[1-3]"
    assert "completing_job" in case.events()


@pytest.mark.slow
def test_slurm_has_to_find_out_by_itself_and_another_step_runs(lab: Lab) -> None:
    case = submit(lab, "slowly", before=f"{SRUN} --nodes=1 --ntasks=1 --nodelist=n3 sleep 1000 &")
    case.wait("the other step", lambda: "sleep" in [process.name for process in lab.node_processes("n3")])
    case.kill_batch_host(noticed=False)
    case.go()
    case.waits("other steps of the job run")
    (sleeper,) = (process.pid for process in lab.node_processes("n3") if process.name == "sleep")
    os.kill(sleeper, signal.SIGKILL)
    case.waits("lists the batch host n0 as")
    case.ends("COMPLETED", "0:0")


@pytest.mark.slow
@ONCE
def test_task_of_a_job_array(lab: Lab) -> None:
    case = submit(lab, "array", "--array=3-4%1", code=75)
    # The task that runs first gets another number than the array, which the second one has in the end.
    array, case.job = case.job, int(lab.run(["squeue", "-h", "--state=RUNNING", "--format=%A"]).stdout)
    assert case.job != array
    lab.run(["scancel", f"{array}_4"])
    case.kill_batch_host(noticed=True)
    case.go()
    case.ends("FAILED", "75:0")


@pytest.mark.slow
def test_slurmctld_is_away(lab: Lab) -> None:
    case = submit(lab, "away")
    case.kill_batch_host(noticed=True)
    lab.stop_daemon("slurmctld")
    case.go()
    case.waits("Unable to contact slurm controller")
    lab.start_daemon("slurmctld")
    case.ends("COMPLETED", "0:0")


def test_living_batch_script_ends_its_job_itself(lab: Lab) -> None:
    case = submit(lab, "alive", after="while ! test -e finish; do sleep 0.1; done; exit 3")
    case.go()
    case.waits("lists the batch host n0 as")
    (case.folder / "finish").touch()
    case.ends("FAILED", "3:0")
    assert "completing_job" not in case.events()


def pyslurm_does_not_fit(lab: Lab) -> str:
    """Why it is of no use on this cluster; empty where it is."""
    code = f"import os, sys; sys.path.insert(0, {str(PACKAGE)!r})\n"
    code += "from ft_slurm.pyslurm_client import why_not; print(why_not(os.environ))"
    return lab.run([sys.executable, "-c", code], user=LAB_USER).stdout.strip()


@pytest.mark.slow
def test_by_pyslurm_where_there_are_no_commands(lab: Lab) -> None:
    if why := pyslurm_does_not_fit(lab):
        pytest.skip(why)
    case = submit(lab, "pyslurm", code=75, environ={"PATH": "/nowhere"})
    case.kill_batch_host(noticed=True)
    case.go()
    case.ends("FAILED", "75:0")
    assert "completing_job" in case.events()


@pytest.mark.slow
@ONCE
def test_container_without_slurm(lab: Lab) -> None:
    """The command that the log tells does end the job."""
    if not pyslurm_does_not_fit(lab):
        pytest.skip("pyslurm is here and fits")
    case = submit(lab, "container", environ={"PATH": "/nowhere"})
    case.kill_batch_host(noticed=True)
    case.go()
    case.wait("the outcome", lambda: "outcome" in case.events())
    left, outcome = case.lines()
    assert left["event"] == "job_left_running"
    assert left["why"].startswith("there is no scontrol in PATH, and pyslurm ")
    assert outcome["outcome"] == "left"
    lab.run(left["ends_it"].split(), user=LAB_USER)
    case.ends("CANCELLED", "0:0")


@pytest.mark.slow
@ONCE
@pytest.mark.parametrize("allocation", [["salloc", "--nodes=4", "--no-kill"], []], ids=["salloc", "srun"])
def test_nothing_to_complete_without_a_batch_script(lab: Lab, allocation: list[str]) -> None:
    case, srun = prepare(lab, "interactive")
    command = [*allocation, *shlex.split(srun)]
    client = lab.popen(command, user=LAB_USER, cwd=case.folder, stdin=subprocess.DEVNULL)
    try:
        case.wait_for("n0", "n1", "n2", "n3")
        case.job = int(lab.run(["squeue", "-h", "--state=RUNNING", "--format=%A"]).stdout)
        case.go()
        assert client.wait(timeout=BOUND) == 0
    finally:
        client.kill()
        client.wait()
    case.ends("COMPLETED", "0:0")
    nothing, outcome = case.lines()
    assert (nothing["event"], outcome["outcome"]) == ("nothing_to_complete", "nothing")
    assert "no batch script" in nothing["why"]

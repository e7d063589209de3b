"""`ft-supervisor fault` from the login node: srun takes its hand to the nodes of one's own job, not of others'."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.slurm_lab.jobs import JOB, BatchJob, submit

from slurm_lab import LAB_USER, Lab, Process

pytestmark = pytest.mark.slow
PROGRAM = str(Path(sys.prefix) / "bin/ft-supervisor")
ALLOWED = JOB + "policy: {faults: {allow: true}}\n"
BOUND = 120.0
# Long steps, so that a fault comes in the middle, until nothing more is to be done to the job.
HURRY = """\
import time
def dawdle(seconds, sleep=time.sleep):
    if not os.path.exists("hurry"):
        sleep(seconds)
time.sleep = dawdle
"""


def fault(job: BatchJob, *words: str, user: str | None = LAB_USER) -> subprocess.CompletedProcess[str]:
    """On the login node; `user` None: root."""
    command = [PROGRAM, "fault", *words, "--job", str(job.id)]
    return job.lab.run(command, user=user, cwd=job.folder, check=False, timeout=BOUND)


def done(job: BatchJob, *words: str) -> str:
    told = fault(job, *words)
    assert (told.returncode, told.stderr) == (0, ""), f"{told}\n{job.told}"
    return told.stdout


def assert_refused(told: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert (told.returncode, told.stdout) == (code, ""), told
    (line,) = told.stderr.splitlines()
    assert all(part in line for part in parts), line


def recorded(job: BatchJob) -> list[dict[str, Any]]:
    path = job.run_folder() / "faults.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def dawdling(lab: Lab, name: str, config: str, user: str = LAB_USER) -> BatchJob:
    """One that trains, in steps of a second until `hurry`."""
    job = submit(lab, name, config=config, first=1.0, later=1.0, within=HURRY, user=user, candidates=3)
    job.train()
    return job


def hurry(job: BatchJob) -> None:
    (job.folder / "hurry").touch()


def test_a_worker_is_killed_by_its_owner_alone(lab: Lab) -> None:
    job = dawdling(lab, "fault-worker", ALLOWED)
    uid = lab.layout.uid(LAB_USER)
    assert_refused(fault(job, "kill", "worker", "--node", "n1", user=None), 4, f"belongs to uid {uid}", "uid 0")
    assert_refused(fault(job, "kill", "node", "--node", "n9"), 3, "n9 is no node of job", "n0, n1, n2, n3")
    assert_refused(fault(job, "kill", "worker", "--rank", "7"), 3, "no worker of rank 7")
    assert_refused(fault(job, "cut", "node", "--node", "n1"), 4, "CAP_NET_ADMIN", "freeze node")
    assert done(job, "kill", "coordinator", "--dry-run").startswith("would kill coordinator node=n0 pid=")
    assert job.rows(1) == [] and recorded(job) == []
    line = done(job, "kill", "worker", "--node", "n1")
    assert " kill worker node=n1 rank=1 pid=" in line
    hurry(job)
    job.ends("COMPLETED", "0:0")
    job.check_codes(0)
    job.check_trained(cycle=1)
    (record,) = recorded(job)
    assert (record["act"], record["target"], record["node"], record["rank"]) == ("kill", "worker", "n1", 1)
    assert_refused(fault(job, "kill", "worker", "--rank", "0"), 3, "has ended")


@pytest.mark.usefixtures("default_release")  # on the other one a kill goes the same way
def test_what_is_frozen_thaws_and_a_node_is_killed(lab: Lab) -> None:
    job = dawdling(lab, "fault-freeze", ALLOWED)
    freeze_and_kill_the_tool(job)
    job.wait("the thaw", lambda: len(recorded(job)) == 2)
    lines = done(job, "freeze", "node", "--node", "n1", "--for", "2s").splitlines()
    assert [line.split()[1:4] for line in lines] == [["freeze", "node", "node=n1"], ["thaw", "node", "node=n1"]]
    assert not frozen(lab)
    before = steps(job)
    job.wait("steps after the freeze", lambda: steps(job) >= before + 2)
    assert len(lab.node_processes("n1")) >= 4  # daemon, agent, coordinator, worker
    assert " kill node node=n1 pid=" in done(job, "kill", "node", "--node", "n1")
    job.dead.add("n1")
    hurry(job)
    job.wait("n1's end", lambda: not any("ft_supervisor" in each.command for each in lab.node_processes("n1")))
    job.ends("COMPLETED", "0:0")
    job.check_codes(0)
    assert " event=promoted node=n3 instead_of=n1 group_rank=1 " in job.output
    assert [(each["act"], each["target"]) for each in recorded(job)] == [
        ("freeze", "worker"),
        ("thaw", "worker"),
        ("freeze", "node"),
        ("thaw", "node"),
        ("kill", "node"),
    ]


@pytest.mark.usefixtures("default_release")
def test_a_node_is_cut_off_and_comes_back(lab: Lab) -> None:
    """The job is root's, who may tell a kernel what to drop. n1's own fence ends its workers while it is cut off."""
    job = dawdling(lab, "fault-cut", ALLOWED, user="root")
    told = fault(job, "cut", "node", "--node", "n1", "--for", "20s", user=None)
    assert (told.returncode, told.stderr) == (0, ""), f"{told}\n{job.told}"
    assert [line.split()[1:4] for line in told.stdout.splitlines()] == [
        ["cut", "node", "node=n1"],
        ["heal", "node", "node=n1"],
    ]
    assert " event=promoted node=n3 instead_of=n1 group_rank=1 " in job.output
    job.train(cycle=1)
    assert not any("train.py --steps" in each.command for each in lab.node_processes("n1"))
    hurry(job)
    job.ends("COMPLETED", "0:0")
    job.check_codes(0)
    job.check_trained(cycle=1)
    assert lab.run(["nft", "list", "ruleset"], node="n1").stdout == ""
    assert [(each["act"], each["node"]) for each in recorded(job)] == [("cut", "n1"), ("heal", "n1")]


def steps(job: BatchJob) -> int:
    """How many the job has told of, in all cycles."""
    return job.output.count('{"step"')


def freeze_and_kill_the_tool(job: BatchJob) -> None:
    """n1's worker; that it thaws is then up to the hand alone."""
    command = [PROGRAM, "fault", "freeze", "worker", "--node", "n1", "--for", "8s", "--job", str(job.id)]
    tool = job.lab.popen(command, user=LAB_USER, cwd=job.folder, stdout=subprocess.PIPE)
    try:
        assert tool.stdout is not None and " freeze worker node=n1 " in tool.stdout.readline()
        (worker,) = frozen(job.lab)
        assert "train.py" in worker.command
    finally:
        tool.kill()
        tool.communicate(timeout=BOUND)
    assert [each["act"] for each in recorded(job)] == ["freeze"]


def frozen(lab: Lab) -> list[Process]:
    return [each for each in lab.node_processes("n1") if each.state == "T"]


@pytest.mark.usefixtures("default_release")
def test_what_the_policy_or_the_jobs_state_does_not_allow(lab: Lab) -> None:
    job = dawdling(lab, "fault-off", JOB)
    waits = lab.submit("#!/bin/sh\n", "--begin=now+1hour", "--output=/dev/null", user=LAB_USER)
    waiting = BatchJob(lab, waits, job.folder)
    assert_refused(fault(waiting, "kill", "worker", "--rank", "0"), 3, "is pending")
    lab.run(["scancel", str(waits)], user=LAB_USER)
    assert_refused(fault(BatchJob(lab, 987654, job.folder), "kill", "worker", "--rank", "0"), 3, "Slurm knows of none")
    assert_refused(fault(job, "kill", "worker", "--rank", "0"), 4, "faults.allow: false")
    hurry(job)
    job.ends("COMPLETED", "0:0")
    job.check_trained()
    assert recorded(job) == []

"""A running job is asked from the login machine: its stacks by srun, its files by each name that Slurm has for it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.slurm_lab.conftest import QUICK_REQUEUE, STANDARD
from tests.slurm_lab.jobs import JOB, submit
from tests.slurm_lab.test_faults import ALLOWED, HURRY, assert_refused, dawdling, hurry

from slurm_lab import LAB_USER, Lab, Parameters

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("default_release")]
PROGRAM = f"{sys.prefix}/bin/ft-supervisor"
BOUND = 150.0


def ask(lab: Lab, *words: str, user: str | None = LAB_USER, cwd: Path | str = "/") -> subprocess.CompletedProcess[str]:
    """Run ft-supervisor on the login machine; `user` None: root."""
    return lab.run([PROGRAM, *words], user=user, cwd=cwd, check=False, timeout=BOUND)


def answer(lab: Lab, *words: str) -> str:
    done = ask(lab, *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_stacks(lab: Lab) -> None:
    job = dawdling(lab, "stacks", JOB)
    said = answer(lab, "stacks", str(job.id))
    assert said.startswith("3 ranks on 3 nodes:\n  rank"), said
    assert [line for line in said.splitlines() if line.startswith("===")] == [
        f"=== rank {rank} (n{rank}, local 0)" for rank in range(3)
    ]
    assert said.count("light_train.py") >= 6, said  # in the clusters, and in each rank's stack
    one = answer(lab, "stacks", str(job.id), "--rank", "1")
    assert one.startswith("3 ranks on 3 nodes:") and one.count("===") == 1 and "=== rank 1 (n1, local 0)" in one
    told = json.loads(answer(lab, "stacks", f"{job.id}.0", "--json"))
    assert [(each["rank"], each["node"]) for each in told["workers"]] == [(0, "n0"), (1, "n1"), (2, "n2")]
    assert told["silent"] == []
    assert_refused(ask(lab, "stacks", str(job.id), user=None), 4, f"belongs to uid {lab.layout.uid(LAB_USER)}")
    assert_refused(ask(lab, "stacks", "987654"), 3, "Slurm knows of none")

    job.train(steps=len(job.rows(0)) + 2)  # it goes on as if nothing had been asked

    job.kill_node("n1", noticed=False)
    job.train(cycle=1)
    began = time.monotonic()
    done = ask(lab, "stacks", str(job.id))  # Slurm takes n1 for alive
    assert done.returncode == 0 and "no answer from n1" in done.stdout, done
    assert [f"=== rank {rank} (n{node}, " in done.stdout for rank, node in enumerate((0, 3, 2))] == [True] * 3, done
    assert time.monotonic() - began < 90
    lab.stop_daemon("slurmctld")
    try:
        assert_refused(ask(lab, "stacks", str(job.id)), 75, "Slurm does not answer")
    finally:
        lab.start_daemon("slurmctld")
    hurry(job)
    job.ends("COMPLETED", "0:0")
    assert job.rows(2) == [], job.told
    assert_refused(ask(lab, "stacks", str(job.id)), 3, "has ended")


@pytest.fixture
def requeues(release_lab: Lab) -> Lab:
    release_lab.renew(Parameters(nodes=STANDARD.nodes, slurmd_timeout=30, conf_lines=QUICK_REQUEUE))
    return release_lab


def listed(lab: Lab) -> dict[str, dict[str, object]]:
    return {each["job"]: each for each in json.loads(answer(lab, "list", "--json"))["runs"]}


def check_found(lab: Lab, name: str, task: int, node: str, run: str) -> None:
    """Ask each command for the running job of this name, in a folder that is none of its own."""
    done = ask(lab, "logs", name)
    assert done.returncode == 0 and '{"step": 1, ' in done.stdout and run in done.stderr, done
    done = ask(lab, "verdict", name)
    assert done.returncode == 75 and f"no verdict of job {name} in " in done.stdout, done
    assert f"kill worker node={node} rank=0 pid=" in answer(lab, "fault", "kill", "worker", "--job", name, "--dry-run")
    assert f"=== rank 0 ({node}, local 0)" in answer(lab, "stacks", name)
    assert str(task) in answer(lab, "status", name)


def test_each_name_of_a_job_finds_it(requeues: Lab) -> None:
    """Two tasks of an array run at the same time; one of them is requeued."""
    lab = requeues
    config = ALLOWED.replace("active: 3", "active: 1")
    options = ("--array=3-4", "--requeue", "--exclusive", "--open-mode=append", "--output=out-%a")
    job = submit(lab, "array", config=config, nodes=2, first=0.5, later=0.5, within=HURRY, options=options)

    def output(index: int) -> str:
        path = job.folder / f"out-{index}"
        return path.read_text() if path.exists() else ""

    job.wait("both tasks' steps", lambda: all('{"step": 2,' in output(index) for index in (3, 4)))
    tasks = {}  # a task that is pending has its array's number
    for index in (3, 4):
        shown = lab.run(["scontrol", "--oneliner", "show", "job", f"{job.id}_{index}"]).stdout
        tasks[index] = int(shown.split()[0].removeprefix("JobId="))
    node = {index: "n0" if "writer=n0" in output(index) else "n2" for index in tasks}
    for index, task in tasks.items():
        assert listed(lab)[f"{job.id}_{index}"]["state"] == "running"
        for name in (f"{job.id}_{index}", str(task)):
            check_found(lab, name, task, node[index], f"{task}.0.0")
    assert_refused(ask(lab, "logs", f"{job.id}_9"), 2, f"array task {job.id}_9")

    lab.run(["scontrol", "requeue", f"{job.id}_3"])
    run = f"{tasks[3]}.0.1"
    job.wait("the second run", lambda: (job.folder / f"ft-runs/{tasks[3]}/{run}/logs").exists())
    job.wait("its steps", lambda: '"step": ' in ask(lab, "logs", f"{job.id}_3").stdout)
    done = ask(lab, "logs", f"{job.id}_3")
    assert run in done.stderr, done
    assert "kill worker" in answer(lab, "fault", "kill", "worker", "--job", f"{job.id}_3", "--dry-run")
    hurry(job)
    job.wait("the ends", lambda: job.states() == ["COMPLETED", "COMPLETED"])
    for name in (f"{job.id}_3", f"{job.id}_4", str(tasks[3]), run):
        assert "success" in answer(lab, "verdict", name)
    states = {name: each["state"] for name, each in listed(lab).items()}
    assert [states.get(f"{job.id}_{index}") for index in tasks] == ["success", "success"], states

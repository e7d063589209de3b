"""What jobs remember of nodes, on a real Slurm: two jobs lose n1 first, and the next ones avoid it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.slurm_lab.jobs import JOB, LIGHT, TRAIN, BatchJob

from slurm_lab import LAB_USER, Lab

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("default_release")]
PROGRAM = f"{sys.prefix}/bin/ft-supervisor"
CONFIG = JOB.replace("active: 3", "active: 2")
STEPS = 16
MARKED = "n1 failed first in 2 jobs (lost_node): "


class User:
    """Works on the login machine, with a memory of nodes that no other test has."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._env = {
            "XDG_STATE_HOME": str(lab.work_dir("state", LAB_USER)),
            "FT_SUPERVISOR__NODES__MEMORY": "own",
            "FT_SUPERVISOR__COORDINATOR__CANDIDATES": "1",
        }

    def __call__(self, *words: str, folder: Path | str = "/") -> subprocess.CompletedProcess[str]:
        return self.lab.run([PROGRAM, *words], user=LAB_USER, cwd=folder, env=self._env, check=False)

    def prepare(self, name: str) -> Path:
        folder = self.lab.work_dir(name, LAB_USER)
        (folder / "job.yaml").write_text(CONFIG)
        (folder / "train.py").write_text(TRAIN % (str(LIGHT), "", "", 0.5, 0.0, STEPS))
        return folder

    def submit(self, name: str, *words: str) -> tuple[BatchJob, str]:
        """Return the job, and what was said on stderr."""
        folder = self.prepare(name)
        line = ["submit", "--config", "job.yaml", "--output=out", *words, "--", sys.executable, "train.py"]
        done = self(*line, folder=folder)
        assert done.returncode == 0, done
        return BatchJob(self.lab, int(done.stdout), folder), done.stderr

    def nodes(self, *words: str) -> list[tuple[str, int, bool]]:
        """Return name, number of jobs and whether it is avoided, for each node that `nodes` shows."""
        done = self("nodes", "--json", *words)
        assert (done.returncode, done.stderr) == (0, ""), done
        found: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
        return [(each["node"], each["jobs"], each["avoided"]) for each in found]

    def excluded(self, job: BatchJob) -> str:
        """Return Slurm's list of nodes that the job must not have."""
        told = self.lab.run(["scontrol", "--oneliner", "show", "job", str(job.id)]).stdout
        return next(word for word in told.split() if word.startswith("ExcNodeList=")).removeprefix("ExcNodeList=")


def lose(job: BatchJob, node: str) -> None:
    """Kill all that the job runs on the node. Slurm's own daemons live on, so that the next job can have it."""
    for process in job.lab.node_processes(node):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    job.dead.add(node)


def fails(job: BatchJob) -> None:
    """The program's own fault: a worker of n1 is killed."""
    os.kill(job.worker("n1").pid, signal.SIGKILL)


def test_nodes_that_fail_first_are_avoided(lab: Lab) -> None:
    user = User(lab)
    blameless, said = user.submit("crash")
    blameless.train(steps=2)
    fails(blameless)
    blameless.ends("COMPLETED", "0:0")
    assert user.nodes() == []
    for number, recorded in ((1, [("n1", 1, False)]), (2, [("n1", 2, True)])):
        job, said = user.submit(f"lost-{number}", "--spares=1")
        assert "failed first" not in said and user.excluded(job) == "(null)"
        job.train(steps=2)
        lose(job, "n1")
        job.ends("COMPLETED", "0:0")
        assert (job.group(0), job.group(1)) == (["n0", "n1"], ["n0", "n2"])
        assert user.nodes() == recorded, job.told

    chosen_last, said = user.submit("proposed", "--spares=1")
    assert f"{MARKED}--avoid add excludes it" in said and user.excluded(chosen_last) == "(null)"
    chosen_last.ends("COMPLETED", "0:0")
    assert "chosen last, as they failed first in former jobs: n1" in chosen_last.output
    assert chosen_last.group(0) == ["n0", "n2"]

    spared, said = user.submit("added", "--spares=1", "--avoid=add")
    assert f"{MARKED}excluded" in said and user.excluded(spared) == "n1"
    spared.ends("COMPLETED", "0:0")
    assert spared.group(0) == ["n0", "n2"]
    refused = user("submit", "--config=job.yaml", "--spares=2", "--avoid=add", "--", "true", folder=spared.folder)
    assert refused.returncode == 1 and MARKED in refused.stderr, refused
    assert "--avoid" in refused.stderr.splitlines()[-1], refused.stderr

    assert user.nodes("--forgive", "n1") == []
    forgiven, said = user.submit("forgiven", "--avoid=add")
    assert "failed first" not in said and user.excluded(forgiven) == "(null)"
    forgiven.ends("COMPLETED", "0:0")
    assert forgiven.group(0) == ["n0", "n1"]

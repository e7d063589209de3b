"""The commands of README and docs that are marked `lab`, on a real cluster, as a user of it.

A batch script is submitted and has to succeed, and so has a job that a block submits. The first script's job loses a
worker on its way; it is the job that all blocks look at whose JOB and OUTPUT stand for its id and its output. Jobs are
what takes time here, 10 to 30 s each: a block that several pages have runs once, and the workers load no torch.
"""

import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm_lab.conftest import STANDARD
from tests.slurm_lab.jobs import BOUND, REPOSITORY, BatchJob

from ft_docs.pages import pages
from slurm_lab import LAB_USER, Lab

pytestmark = pytest.mark.slow
NODES = tuple(f"n{index}" for index in range(6))
"""As many as the pages ask for."""
PLACES: dict[str, str] = {}
"""Where each block stands first, by its text."""
for page in pages(REPOSITORY):
    for block in page.blocks:
        if block.kind == "lab":
            PLACES.setdefault(block.text, block.place)
SCRIPT = next(text for text in PLACES if text.startswith("#!"))
JOB = """\
name: docs
cluster: none
nodes: {active: 4}
workers:
  per_node: 1
  command: [python, train.py, --steps, "%d"]
"""
TRAIN = """\
import json, os, sys, time
cycle = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for step in range(int(sys.argv[2]) if cycle == 0 else 1):
    if os.environ["RANK"] == "0":
        print(json.dumps({"step": step, "cycle": cycle}), flush=True)
    time.sleep(0.1)
"""
HEAD = "#!/bin/bash\n#SBATCH --nodes=6 --ntasks-per-node=1 --exclusive\n#SBATCH --no-kill\n"
OVER: dict[str, BatchJob] = {}
"""The job that blocks look at, made when the first one does."""


@pytest.fixture
def pages_lab(default_release: None, release_lab: Lab) -> Lab:
    release_lab.renew(replace(STANDARD, nodes=len(NODES)))
    return release_lab


def over(lab: Lab) -> BatchJob:
    """The first script's job, which has lost a worker, and has succeeded."""
    if "job" not in OVER or not OVER["job"].folder.exists():  # with the cluster, if that had to be made anew
        folder = a_folder(lab, "docs-over", steps=600)
        (folder / "script").write_text(SCRIPT)
        number = int(bash(lab, folder, "sbatch --parsable --output=out script"))
        job = BatchJob(lab, number, folder, NODES)
        job.train()
        os.kill(job.worker("n1").pid, signal.SIGKILL)
        job.ends("COMPLETED", "0:0")
        OVER["job"] = job
    return OVER["job"]


def bash(lab: Lab, folder: Path, text: str) -> str:
    """What the block prints; it has to exit with 0."""
    line = ["bash", "-ec", f"source .venv/bin/activate\n{text}"]
    return lab.run(line, user=LAB_USER, cwd=folder, timeout=BOUND).stdout


def a_folder(lab: Lab, name: str, *, steps: int = 5) -> Path:
    """With what a reader of the pages has by then, and a training of so many steps."""
    folder = lab.work_dir(name, LAB_USER)
    (folder / "job.yaml").write_text(JOB % steps)
    (folder / "train.py").write_text(TRAIN)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    return folder


@pytest.mark.parametrize("text", PLACES, ids=PLACES.get)
def test_the_commands_of_a_page_run_on_a_cluster(pages_lab: Lab, text: str) -> None:
    lab, name = pages_lab, "docs-" + re.sub(r"\W", "-", PLACES[text])
    if text == SCRIPT:
        over(lab)
    elif text.startswith(("#!", "srun ")):
        folder = a_folder(lab, name)
        (folder / "script").write_text((HEAD if text.startswith("srun ") else "") + text)
        bash(lab, folder, "sbatch --wait --output=out script || { cat out; exit 1; }")
    elif "ft-supervisor submit" in text:
        folder = a_folder(lab, name)
        said = bash(lab, folder, text).split()
        record = lab.wait_job(int(said[-1]), BOUND)
        assert (record.state, record.exit_code) == ("COMPLETED", "0:0"), said
    else:
        job = over(lab)
        text = re.sub(r"\bJOB\b", str(job.id), text)
        assert bash(lab, job.folder, re.sub(r"\bOUTPUT\b", "out", text)).strip()

"""The commands of README and docs that are marked `lab`, on a real cluster, as a user of it.

A batch script is submitted and has to succeed, and so has a job that a block submits. What looks at a job that is over
gets one which has lost a worker on its way; JOB and OUTPUT in a block are its id and its output.
"""

import os
import re
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm_lab.conftest import STANDARD
from tests.slurm_lab.jobs import BOUND, REPOSITORY, BatchJob, submit

from ft_docs.pages import Block, pages
from slurm_lab import LAB_USER, Lab

NODES = 6
BLOCKS = [block for page in pages(REPOSITORY) for block in page.blocks if block.kind == "lab"]
JOB = """\
name: docs
cluster: none
nodes: {active: 4}
workers:
  per_node: 1
  command: [python, train.py, --steps, "20"]
"""
HEAD = "#!/bin/bash\n#SBATCH --nodes=6 --ntasks-per-node=1 --exclusive\n#SBATCH --no-kill\n"
OVER: dict[str, BatchJob] = {}
"""The job that blocks look at, made when the first one does."""


@pytest.fixture
def pages_lab(default_release: None, release_lab: Lab) -> Lab:
    """As many nodes as the pages ask for."""
    if not release_lab.up(replace(STANDARD, nodes=NODES)):
        release_lab.restore_all()
    return release_lab


def over(lab: Lab) -> BatchJob:
    """A job that has lost a worker, and has succeeded."""
    if "job" not in OVER or not OVER["job"].folder.exists():  # with the cluster, if that had to be made anew
        job = submit(lab, "docs-over")
        job.train()
        os.kill(job.worker("n1").pid, signal.SIGKILL)
        job.ends("COMPLETED", "0:0")
        OVER["job"] = job
    return OVER["job"]


def bash(lab: Lab, folder: Path, text: str) -> str:
    """What the block prints; it has to exit with 0."""
    line = ["bash", "-ec", f"source .venv/bin/activate\n{text}"]
    return lab.run(line, user=LAB_USER, cwd=folder, timeout=BOUND).stdout


def a_folder(lab: Lab, name: str) -> Path:
    """With what a reader of the pages has by then."""
    folder = lab.work_dir(name, LAB_USER)
    (folder / "job.yaml").write_text(JOB)
    (folder / "train.py").write_text((REPOSITORY / "configs/examples/ddp/train.py").read_text())
    (folder / ".venv").symlink_to(Path(sys.prefix))
    return folder


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_the_commands_of_a_page_run_on_a_cluster(pages_lab: Lab, block: Block) -> None:
    lab, name = pages_lab, "docs-" + re.sub(r"\W", "-", block.place)
    if block.text.startswith(("#!", "srun ")):
        folder = a_folder(lab, name)
        (folder / "script").write_text((HEAD if block.text.startswith("srun ") else "") + block.text)
        bash(lab, folder, "sbatch --wait --output=out script || { cat out; exit 1; }")
    elif "ft-supervisor submit" in block.text:
        folder = a_folder(lab, name)
        said = bash(lab, folder, block.text).split()
        record = lab.wait_job(int(said[-1]), BOUND)
        assert (record.state, record.exit_code) == ("COMPLETED", "0:0"), said
    else:
        job = over(lab)
        text = re.sub(r"\bJOB\b", str(job.id), block.text)
        assert bash(lab, job.folder, re.sub(r"\bOUTPUT\b", shlex.quote("out"), text)).strip()

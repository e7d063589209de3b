"""`ft_slurm.ending` on a real Slurm: who sent the SIGTERM, asked from within the job as soon as its task has it.

The job's one task asks slurmctld when the signal comes, as a daemon would, and writes down what it made of the answer.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.slurm_lab.conftest import STANDARD

from slurm_lab import LAB_USER, Lab, Parameters

BOUND = 180.0
"""Seconds for everything that is waited for, on a machine that does other things too."""
PACKAGE = Path(__file__).resolve().parents[2] / "slurm"
PREEMPTION = Parameters(
    nodes=1,
    slurmd_timeout=STANDARD.slurmd_timeout,
    conf_lines=(
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=20",
        "PartitionName=high Nodes=ALL PriorityTier=10",
    ),
)
TASK = """\
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {package!r})
from ft_slurm.cli_client import CliClient
from ft_slurm.ending import ending
here, client = Path({folder!r}), CliClient(os.environ)
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
(here / "started").touch()
signal.sigwait({{signal.SIGTERM}})
job = client.job(int(os.environ["SLURM_JOB_ID"]), timeout=3.0)
(here / "partial").write_text(f"{{ending(job, time.time())}} {{job.name}}")
(here / "partial").rename(here / "told")
"""


@dataclass
class Case:
    """A job of one task, and what its task was told."""

    lab: Lab
    folder: Path
    job: int = 0

    def wait(self, name: str) -> str:
        end = time.monotonic() + BOUND
        while not (self.folder / name).exists():
            assert time.monotonic() < end, f"{name}: not within {BOUND:.0f} s\n{self.output()}"
            time.sleep(0.05)
        return (self.folder / name).read_text()

    def output(self) -> str:
        path = self.folder / "out"
        return path.read_text() if path.exists() else ""


def start(lab: Lab, name: str, *options: str) -> Case:
    """Submits a job, and waits until its task waits for the signal."""
    folder = lab.work_dir(f"ending-{name}", LAB_USER)
    for old in folder.iterdir():
        old.unlink()
    (folder / "task.py").write_text(TASK.format(package=str(PACKAGE), folder=str(folder)))
    case = Case(lab, folder)
    script = f"#!/bin/sh\nsrun --overlap {sys.executable} {folder}/task.py\n"
    case.job = lab.submit(script, "--output=out", *options, user=LAB_USER, cwd=folder)
    case.wait("started")
    return case


@pytest.mark.parametrize(
    ("command", "told"),
    [(["scancel"], "cancelled"), (["scontrol", "requeue"], "requeued"), (["scancel", "--signal=TERM"], "nothing")],
    ids=["scancel", "requeue", "signal"],
)
def test_people(lab: Lab, command: list[str], told: str) -> None:
    case = start(lab, "people", "--requeue", "--time=10")
    case.lab.run([*command, str(case.job)], user=LAB_USER)
    assert case.wait("told") == f"{told} {case.job}"


@pytest.mark.slow
def test_preemption_with_grace(release_lab: Lab) -> None:
    """The signal comes to the step's tasks alone, and to the batch script only when the grace is over."""
    release_lab.renew(PREEMPTION)
    case = start(release_lab, "preemption", "--partition=low", "--exclusive", "--requeue")
    case.lab.submit("#!/bin/sh\n", "--partition=high", "--exclusive", "--output=/dev/null", user=LAB_USER)
    assert case.wait("told") == f"preempted {case.job}"

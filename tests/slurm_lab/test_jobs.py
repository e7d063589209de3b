"""The main job, end to end: a training on a real Slurm, nodes that die, and what sacct says in the end.

Three nodes train, the fourth is a hot spare. The first node is never killed: it is the coordinator's and the batch
script's.
"""

import os
import re
import signal
from collections.abc import Iterator

import pytest
from tests.slurm_lab.conftest import STANDARD
from tests.slurm_lab.jobs import EXAMPLE, JOB, submit

from slurm_lab import LAB_USER, Lab


def test_no_fault(lab: Lab) -> None:
    job = submit(lab, "no-fault", first=0.0, training=EXAMPLE, candidates=3)
    job.ends("COMPLETED", "0:0")
    job.check_trained()
    job.check_codes(0)
    assert (job.verdict() or {})["outcome"] == "success"


def test_worker_crash_under_an_own_srun_line(lab: Lab) -> None:
    job = submit(lab, "crash", script="own_srun")
    job.train()
    os.kill(job.worker("n1").pid, signal.SIGKILL)
    job.ends("COMPLETED", "0:0")
    job.check_trained(cycle=1)
    job.check_codes(0)
    assert "killed by SIGKILL" in job.output
    assert "\nsuccess: " in job.output  # what `ft-supervisor verdict` prints
    # Without `launch` the first node's daemon wrote the job into the user's index of runs.
    index = f"/home/{LAB_USER}/.local/state/ft-supervisor/runs/lab/{job.id}"
    assert str(job.folder / f"ft-runs/{job.id}") in lab.run(["cat", index]).stdout
    record = lab.sacct(job.id)
    assert record is not None
    assert re.fullmatch(r"\[ft: success, 2 cycles(, [0-9]+ s lost)?\]", record.comment), record.comment


@pytest.fixture
def unaware(lab: Lab) -> Iterator[Lab]:
    """A cluster whose Slurm takes longer than any test to call a dead node DOWN by itself."""
    lab.slurmd_timeout(300)
    yield lab
    lab.slurmd_timeout(STANDARD.slurmd_timeout)


def test_active_node_dies_and_slurm_does_not_know_it_when_the_job_ends(unaware: Lab) -> None:
    job = submit(unaware, "active", training=EXAMPLE)
    job.train()
    job.kill_node("n1", noticed=False)
    job.ends("COMPLETED", "0:0")
    assert job.seconds_since_training() < 100  # Slurm alone would need 300
    job.check_trained(cycle=1)
    job.check_codes(0)
    assert " event=promoted node=n3 instead_of=n1 group_rank=1 " in job.output
    assert job.states() == ["COMPLETED"]
    state = unaware.run(["sinfo", "--noheader", "--nodes=n1", "--format=%T"]).stdout
    assert not state.startswith("down")


@pytest.mark.slow
def test_standby_dies(lab: Lab) -> None:
    job = submit(lab, "standby", first=0.2)
    job.train()
    job.kill_node("n3", noticed=True)
    job.ends("COMPLETED", "0:0")
    job.check_trained()
    job.check_codes(0)
    assert " event=node_lost node=n3 " in job.output
    assert sorted(job.states()) == ["COMPLETED", "RESIZING"]


def test_no_spare_left(lab: Lab) -> None:
    job = submit(lab, "exhausted", later=0.5)
    job.train()
    job.kill_node("n1", noticed=True)
    job.train(cycle=1)
    assert job.rows(1)[0]["resumed_from"] > 0
    job.kill_node("n2", noticed=True)
    job.ends("FAILED", "75:0")
    job.check_codes(75)
    verdict = job.verdict() or {}
    assert (verdict["outcome"], verdict["exit_code"]) == ("interrupted", 75)
    assert verdict["reason"].startswith("too few nodes: 2 of 3 nodes are left")


def test_wrong_configuration(lab: Lab) -> None:
    job = submit(lab, "wrong", config=JOB.replace("active: 3", "active: 5"))
    job.ends("FAILED", "2:0")
    assert "job.yaml:3: nodes.active: 5 is more than the 4 nodes that there are" in job.output
    assert "Traceback" not in job.output

"""A job with --requeue=expedite, which Slurm would run again and hold: it ends with its verdict. Since Slurm 25.11."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from tests.slurm_lab.conftest import STANDARD
from tests.slurm_lab.jobs import JOB, submit

from ft_slurm import expedite, scontrol_text
from slurm_lab import Lab

pytestmark = pytest.mark.slow
EXPEDITING = replace(STANDARD, conf_lines=(f"SlurmctldParameters={expedite.PARAMETER}",))
FAILS = f"{JOB}policy: {{failures: [{{match: {{signal: SIGKILL}}, action: fail}}, {{match: any, action: restart}}]}}\n"
LOSES = f"{JOB}policy: {{failures: [{{match: lost_node, action: fail}}, {{match: any, action: restart}}]}}\n"
OPTIONS = ("--requeue=expedite",)


@pytest.fixture
def expediting(lab: Lab) -> Lab:
    if scontrol_text.version(lab.run(["scontrol", "--version"]).stdout) < expedite.SINCE:
        pytest.skip("this Slurm has no --requeue=expedite")
    lab.up(EXPEDITING)
    return lab


@pytest.mark.parametrize("script", ["launch", "own_srun"])
def test_a_job_that_is_not_to_run_again_does_not(expediting: Lab, script: str) -> None:
    job = submit(expediting, f"expedited-{script}", script=script, config=FAILS, options=OPTIONS)
    job.train()
    os.kill(job.worker("n1").pid, signal.SIGKILL)
    job.ends("FAILED", "93:0")
    job.check_codes(93)
    assert " event=requeue_forbidden " in job.output
    assert job.states(duplicates=True) == ["FAILED"]


def test_nor_does_one_that_is_completed_for_its_dead_batch_host(expediting: Lab) -> None:
    job = submit(expediting, "expedited-host", config=LOSES, options=OPTIONS, candidates=3)
    job.train()
    job.kill_node("n0", noticed=True)
    job.ends("FAILED", "93:0")
    assert "REQUEUED" not in job.states(duplicates=True)

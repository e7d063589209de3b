"""Tests `--requeue=expedite` on the records of a real slurmctld of 26.05, and how such a job is kept from running
again."""

from pathlib import Path

import pytest
from tests.ft_slurm.fake_slurm import JOB, RECORDED, FakeSlurm

from ft_slurm import expedite, sbatch_options, scontrol_json, scontrol_text
from ft_slurm.cli_client import CliClient
from ft_slurm.errors import Refused, Unanswered
from ft_slurm.pyslurm_client import PyslurmClient
from ft_slurm.records import JobState

FAKE_PYSLURM = Path(__file__).parent / "fake_pyslurm"


def read(case: str, kind: str) -> JobState:
    text = (RECORDED / "26.05" / f"job-{case}.{kind}").read_text()
    job = {"txt": scontrol_text.job, "json": scontrol_json.job}[kind](text, JOB)
    assert job is not None
    return job


@pytest.mark.parametrize("kind", ["txt", "json"])
def test_mark(kind: str) -> None:
    """The first job's comment is `ExpeditedRequeue=No`. With Requeue=0 the mark stays."""
    found = {case: read(case, kind) for case in ("expedited", "expedited-kept", "expedited-held", "cancel-running")}
    assert {case: (job.expedited, job.requeue, expedite.runs_again(job)) for case, job in found.items()} == {
        "expedited": (True, True, True),
        "expedited-kept": (True, False, False),
        "expedited-held": (True, True, True),
        "cancel-running": (False, True, False),
    }
    assert found["expedited"].comment == "ExpeditedRequeue=No"
    assert (found["expedited-held"].state, found["expedited-held"].flags) == ("PENDING", frozenset({"REQUEUE_HOLD"}))


@pytest.mark.parametrize("before", [" Comment=", " Command=", " SubmitLine=", " StdOut="])
def test_mark_that_is_the_users_own_word(before: str) -> None:
    text = (RECORDED / "26.05" / "job-cancel-running.txt").read_text()
    changed = text.replace(before, f"{before}ExpeditedRequeue=Yes ")
    job = scontrol_text.job(changed, JOB)
    assert changed != text and job is not None and not job.expedited


@pytest.mark.parametrize(
    ("environ", "options", "expected"),
    [
        ({}, "", False),
        ({"SBATCH_REQUEUE": ""}, "", False),
        ({"SBATCH_REQUEUE": "1"}, "", False),
        ({"SBATCH_REQUEUE": "Expedite"}, "", True),
        ({"SBATCH_REQUEUE": "expedite"}, "--requeue", True),
        ({"SBATCH_REQUEUE": "expedite"}, "--no-requeue", False),
    ],
)
def test_environment(environ: dict[str, str], options: str, expected: bool) -> None:
    assert expedite.is_set(environ, sbatch_options.parse(options.split())) == expected


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    slurm = FakeSlurm(tmp_path, "26.05")
    slurm.job("expedited")
    return slurm


def test_job_that_would_run_again(slurm: FakeSlurm) -> None:
    client = CliClient(slurm.environ)
    assert client.end_for_good(JOB, 0)
    assert slurm.asked()[-1] == f"scontrol update jobid={JOB} requeue=0"
    slurm.job("expedited-kept")
    assert not client.end_for_good(JOB, 0)
    assert len([line for line in slurm.asked() if "update" in line]) == 1


@pytest.mark.parametrize(("case", "restart_count"), [("expedited", 1), ("cancel-running", 0)])
def test_another_run_or_another_job(slurm: FakeSlurm, case: str, restart_count: int) -> None:
    slurm.job(case)
    assert not CliClient(slurm.environ).end_for_good(JOB, restart_count)
    assert not any("update" in line for line in slurm.asked())


def test_older_slurmctlds_are_not_asked(tmp_path: Path) -> None:
    slurm = FakeSlurm(tmp_path, "24.11")
    assert not CliClient(slurm.environ).end_for_good(JOB, 0)
    assert slurm.asked() == ["scontrol --version"]


def test_it_is_refused_or_not_answered(slurm: FakeSlurm) -> None:
    slurm.says("refused", "Requested operation not supported on this system for job 4242\n")
    with pytest.raises(Refused, match="not supported"):
        CliClient(slurm.environ).end_for_good(JOB, 0)
    slurm.says("away", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
    with pytest.raises(Unanswered, match="Unable to contact"):
        CliClient(slurm.environ).end_for_good(JOB, 0)


@pytest.mark.parametrize(
    ("state", "restart_count", "expected"), [("", 0, False), ("expedites", 0, True), ("expedites", 1, False)]
)
def test_pyslurm_tells_of_the_cluster_alone(tmp_path: Path, state: str, restart_count: int, expected: bool) -> None:
    (tmp_path / (state or "nothing")).touch()
    client = PyslurmClient({"PATH": "", "PYTHONPATH": str(FAKE_PYSLURM), "FAKE_PYSLURM": str(tmp_path)})
    assert client.end_for_good(JOB, restart_count) == expected
    assert (f"is_requeueable=False {JOB}" in (tmp_path / "asked").read_text().splitlines()) == expected

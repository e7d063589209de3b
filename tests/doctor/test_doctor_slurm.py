"""Tests doctor with stand-ins for Slurm's commands, some of which hang."""

import time
from pathlib import Path

import pytest
from tests.doctor.environments import BATCH
from tests.ft_slurm.fake_slurm import FakeSlurm

from ft_supervisor.doctor import job, slurm, slurm_answers
from ft_supervisor.doctor.environment import Environment, detect
from ft_supervisor.doctor.finding import Finding, Level
from ft_supervisor.doctor.slurm_answers import Answers


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    for name in ("BOUND", "SACCT_PATIENCE"):
        monkeypatch.setattr(slurm_answers, name, 1.0)
    monkeypatch.setattr(slurm, "BOUND", 1.0)
    return FakeSlurm(tmp_path, "24.11")


def found(here: Environment) -> dict[str, Finding]:
    answers = Answers(here)
    answers.begin()
    return {each.check: each for each in (*slurm.check(here, answers), *job.check(here, answers))}


def batch(fake: FakeSlurm) -> Environment:
    return detect({**BATCH, "SLURM_JOB_ID": "4242", "PATH": fake.environ["PATH"]}, None)


def test_commands_that_hang(fake: FakeSlurm) -> None:
    fake.says("hang", "")
    began = time.monotonic()
    findings = found(batch(fake))
    assert time.monotonic() - began < 60
    for check in ("slurm version", "slurmctld", "job", "--no-kill"):
        finding = findings[check]
        assert finding.level is Level.WARN and "has not answered within" in finding.text, finding


def test_in_a_container_without_commands_there_is_one_line_about_them() -> None:
    findings = found(detect({**BATCH, "PATH": "/nowhere"}, None))
    assert "slurmctld" not in findings and "launch" in findings["slurm commands"].todo
    assert findings["pyslurm"].level is Level.WARN and findings["pyslurm"].todo


def test_a_job_that_slurm_has_forgotten(fake: FakeSlurm) -> None:
    fake.no_job()
    assert found(batch(fake))["job"].text == "slurmctld has forgotten it"


def test_sacct_gets_a_moment_to_learn_of_the_job(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_answers, "SACCT_PATIENCE", 60.0)
    fake.says("sacct.txt", "")
    here = batch(fake)
    answers = Answers(here)
    answers.begin()
    end = time.monotonic() + 60
    while not any(line.startswith("sacct") for line in fake.asked()):
        assert time.monotonic() < end
        time.sleep(0.01)
    fake.says("sacct.txt", "4242\x1fsalloc --no-kill\n")
    assert answers.lines() == {"": "salloc --no-kill"}

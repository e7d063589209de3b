"""Tests the checks of the job and of Slurm, table by table, and in which of both the command runs."""

import os
from pathlib import Path

import pytest
from tests.doctor.environments import BATCH, STEP
from tests.submit.test_script import job

from ft_slurm.records import JobState, NodeState
from ft_supervisor.doctor import job as running_job
from ft_supervisor.doctor import slurm
from ft_supervisor.doctor.environment import Where, detect
from ft_supervisor.doctor.finding import Level
from ft_supervisor.doctor.slurm_answers import Answers, Configuration

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL


# Where


def test_where(tmp_path: Path) -> None:
    config = job(tmp_path, "run_dir: a/{job_id}/x")
    outside, batch, step = (detect(environ, config) for environ in ({}, BATCH, STEP))
    assert [each.where for each in (outside, batch, step)] == [Where.OUTSIDE, Where.ALLOCATION, Where.STEP]
    assert [len(each.nodes) for each in (outside, batch, step)] == [0, 4, 4]
    assert (outside.run_dir, batch.run_dir, step.run_dir) == (Path.cwd() / "a", *[Path("/submit/a/7/x")] * 2)
    several = detect({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(x4)", "SLURM_STEP_NUM_NODES": "4"}, config)
    assert several.where is Where.ALLOCATION
    assert [each.level for each in running_job.tasks(several)] == [FAIL]
    odd = detect({**BATCH, "SLURM_JOB_NODELIST": "n[0-"}, config)
    assert [each.check for each in running_job.check(odd, Answers(odd))] == ["environment"]
    assert odd.where is Where.OUTSIDE and "found the end" in odd.problem


# The job


@pytest.mark.parametrize(
    ("line", "script", "level"),
    [
        ("sbatch --no-kill -N6 x.sh", None, OK),
        ("sbatch -k x.sh", "", OK),
        ("sbatch x.sh", "--nodes=6 --no-kill", OK),
        ("sbatch --no-kil x.sh", "", OK),
        ("sbatch -N6 x.sh", "--nodes=6", FAIL),
        ("sbatch -p blink x.sh", "", FAIL),
        ("salloc -N4", None, FAIL),
        ("salloc -N4 --no-kill", None, OK),
        ("sbatch -N6 x.sh", None, WARN),
        (None, None, WARN),
        (None, "--nodes=6", WARN),
    ],
)
def test_no_kill(line: str | None, script: str | None, level: Level) -> None:
    assert running_job.no_kill(line, script, "").level is level


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("srun --no-kill --kill-on-bad-exit=0 --wait=0 ft-supervisor", OK),
        ("srun --no-kill ft-supervisor", WARN),
        ("srun -k -K0 ft-supervisor", WARN),
        ("srun --kill-on-bad-exit=0 --wait=0 ft-supervisor", FAIL),
        ("", WARN),
        (None, WARN),
    ],
)
def test_own_srun_line(line: str | None, level: Level) -> None:
    (found,) = running_job.step_line(line)
    assert found.level is level


@pytest.mark.parametrize(
    ("active", "count", "level"),
    [("4", 3, FAIL), ("4", 4, WARN), ("4", 5, OK), ("{min: 2, max: 4}", 3, WARN), ("{min: 2, max: 4}", 1, FAIL)],
)
def test_spares(active: str, count: int, level: Level, tmp_path: Path) -> None:
    (found,) = running_job.spares(job(tmp_path, nodes=f"{{active: {active}}}"), count)
    assert found.level is level
    assert running_job.spares(None, count) == []


@pytest.mark.parametrize(
    ("environ", "level"),
    [({}, OK), ({"SLURM_NTASKS_PER_NODE": "1"}, OK), ({"SLURM_NTASKS_PER_NODE": "8"}, WARN),
     ({"SLURM_TASKS_PER_NODE": "1(x4)"}, OK), ({"SLURM_TASKS_PER_NODE": "8(x3),4"}, WARN)],
)  # fmt: skip
def test_tasks(environ: dict[str, str], level: Level) -> None:
    (found,) = running_job.tasks(detect({**BATCH, **environ}, None))
    assert found.level is level


def test_requeue(tmp_path: Path) -> None:
    config = job(tmp_path, "policy: {interruption: {requeue: true}}")
    state = JobState(7, "RUNNING", requeue=True)
    assert [each.level for each in running_job.requeue(config, state)] == [OK]
    (found,) = running_job.requeue(config, JobState(7, "RUNNING", array_job_id=5, array_task_id=2))
    assert found.level is WARN and "jobid=5_2" in found.todo
    assert running_job.requeue(job(tmp_path), state) == []


def test_requeue_without_being_asked(tmp_path: Path) -> None:
    for config in (None, job(tmp_path), job(tmp_path, "policy: {interruption: {requeue: true}}")):
        (found,) = running_job.requeue(config, JobState(7, "RUNNING", requeue=True, expedited=True))
        assert found.level is FAIL and "after each end that is no success" in found.text
        assert "scontrol update jobid=7 requeue=0" in found.todo
    assert running_job.requeue(None, JobState(7, "RUNNING", expedited=True)) == []


def test_environment_that_sbatch_would_read() -> None:
    assert running_job.submission({"SBATCH_REQUEUE": "yes"}) == []
    (found,) = running_job.submission({"SBATCH_REQUEUE": "expedite"})
    assert found.level is FAIL and "unset SBATCH_REQUEUE" in found.todo


def test_states_of_nodes() -> None:
    up, draining = NodeState("n0", "MIXED"), NodeState("n1", "MIXED", frozenset({"DRAIN"}), "bad GPU")
    assert running_job.nodes_states({"n0": up}, 1).level is OK
    found = running_job.nodes_states({"n0": up, "n1": draining}, 2)
    assert (found.level, found.text) == (WARN, "n1 is MIXED+DRAIN (bad GPU)")


# Slurm


@pytest.mark.parametrize(
    ("there", "where", "level"),
    [
        (list(slurm.COMMANDS), Where.OUTSIDE, OK),
        (["scontrol"], Where.OUTSIDE, WARN),
        ([], Where.OUTSIDE, WARN),
        ([], Where.STEP, WARN),
    ],
)
def test_commands(there: list[str], where: Where, level: Level) -> None:
    assert slurm.judge_commands(there, where).level is level


@pytest.mark.parametrize(
    ("text", "level"),
    [("slurm-wlm 24.11.5", OK), ("slurm 22.05.8", OK), ("slurm 21.08.1", FAIL), ("who knows", WARN)],
)
def test_version(text: str, level: Level) -> None:
    assert slurm.judge_version(text).level is level


@pytest.mark.parametrize(
    ("own", "why_not", "there", "level", "words"),
    [
        (None, "", ["scontrol"], OK, "not installed"),
        (None, "", [], WARN, "no commands"),
        ("24.11.0", "", ["scontrol"], OK, "works"),
        ("25.11.2", "", ["scontrol"], WARN, "made for 25.11, and Slurm is 24.11"),
        ("24.11.0", "pyslurm does not work here: x", ["scontrol"], WARN, "uninstall"),
        ("25.11.2", "pyslurm does not work here: x", [], WARN, "install the one"),
    ],
)
def test_pyslurm(own: str | None, why_not: str, there: list[str], level: Level, words: str) -> None:
    found = slurm.judge_pyslurm(own, why_not, there, "slurm-wlm 24.11.5" if there else None)
    assert found.level is level and words in f"{found.text} {found.todo}"


@pytest.mark.parametrize(("offset", "level"), [(0.9, OK), (-1.9, OK), (3.0, WARN), (-60.0, WARN)])
def test_clock(offset: float, level: Level) -> None:
    (found,) = slurm.clock(Configuration({}, offset), detect({}, None))
    assert found.level is level
    assert slurm.clock(Configuration({}), detect({}, None)) == []


def test_a_library_is_loaded_in_a_process_of_its_own(tmp_path: Path) -> None:
    """A file that is no library gives a finding; the lab tests load a real one."""
    path = tmp_path / "libslurmfull.so"
    path.write_text("no library")
    (found,) = slurm.library(detect(os.environ, None), "", lambda *_: path)
    assert found.level is WARN and "file too short" in found.text
    (found,) = slurm.library(detect(os.environ, None), "", lambda *_: None)
    assert found.level is WARN and "scancel" in found.todo


def test_what_this_step_uses_goes_before_the_sites_default() -> None:
    answer = Configuration({"MpiDefault": "pmix"})
    assert slurm.settings(answer, detect({}, None))["MpiDefault"] == "pmix"
    assert slurm.settings(answer, detect({"SLURM_MPI_TYPE": "none"}, None))["MpiDefault"] == "none"
    assert slurm.settings(answer, detect(STEP, None))["MpiDefault"] == "none"
    assert slurm.settings(answer, detect({**STEP, "SLURM_MPI_TYPE": "pmi2"}, None))["MpiDefault"] == "pmi2"

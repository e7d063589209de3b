"""Tests the reason for a job's end on real slurmctlds' records, 0.3 s and 2 s after the job's first SIGTERM."""

import pytest
from tests.ft_slurm.fake_slurm import JOB, RECORDED, RELEASES

from ft_slurm import scontrol_json, scontrol_text
from ft_slurm.ending import Ending, ending
from ft_slurm.records import JobState

CASES = {
    "cancel": Ending.CANCELLED,
    "cancel-srun": Ending.CANCELLED,
    "cancel-salloc": Ending.CANCELLED,
    "limit": Ending.TIME_LIMIT,
    "preempt-requeue": Ending.PREEMPTED,
    "preempt-cancel": Ending.PREEMPTED,
    "nograce-cancel": Ending.PREEMPTED,
    "nograce-requeue": Ending.REQUEUED,  # JSON has more
    "requeue": Ending.REQUEUED,
    "requeue-limit": Ending.REQUEUED,
    "signal": Ending.NOTHING,
}
AT_TERM = 2.0
OUTPUTS = [(release, kind) for release in RELEASES for kind in ("txt", "json") if (release, kind) != ("22.05", "json")]


def read(release: str, name: str, kind: str) -> JobState:
    path = RECORDED / release / f"job-{name}.{kind}"
    job = {"txt": scontrol_text.job, "json": scontrol_json.job}[kind](path.read_text(), JOB)
    assert job is not None
    return job


def when(release: str, name: str) -> float:
    """Return about when slurmctld was asked: the start of a job that is requeued is always now."""
    running = read(release, name, "txt")
    return float(max(filter(None, [running.start_time, running.preempt_time, min(running.end_time or 0, 2**31)])))


@pytest.mark.parametrize(("release", "kind"), OUTPUTS)
@pytest.mark.parametrize("moment", ["0.3", "2.0"])
@pytest.mark.parametrize("case", CASES)
def test_ending(release: str, kind: str, moment: str, case: str) -> None:
    job = read(release, f"{case}-{moment}", kind)
    if case in ("requeue-limit", "signal"):
        now = float(job.start_time or 0) + AT_TERM
    else:
        now = when(release, f"{case}-{moment}") + AT_TERM
    expected = CASES[case]
    if (case, kind) == ("nograce-requeue", "json"):
        expected = Ending.PREEMPTED
    for skew in (-20.0, 0.0, 20.0):
        assert ending(job, now + skew) == expected


@pytest.mark.parametrize(("release", "kind"), OUTPUTS)
def test_running_job_is_not_ending(release: str, kind: str) -> None:
    for name in ("cancel-running", "longer-running", "requeue-second"):
        job = read(release, name, kind)
        assert ending(job, float(job.start_time or 0) + 5.0) == Ending.NOTHING


@pytest.mark.parametrize(("release", "kind"), OUTPUTS)
@pytest.mark.parametrize("then", ["cancel", "requeue"])
def test_what_is_done_to_a_preempted_job(release: str, kind: str, then: str) -> None:
    """Where the state is one word, the preemption hides a scancel, and a requeue hides the preemption."""
    job = read(release, f"{then}-in-grace", kind)
    has_state = kind == "json" and release != "23.02-made"
    if then == "cancel":
        expected = Ending.CANCELLED if has_state else Ending.PREEMPTED
    else:
        expected = Ending.PREEMPTED if kind == "json" else Ending.REQUEUED
    assert ending(job, when(release, f"{then}-in-grace") + 0.8) == expected


@pytest.mark.parametrize(("release", "kind"), OUTPUTS)
def test_end_of_the_grace(release: str, kind: str) -> None:
    """scontrol's text hides the end of a job without a time limit, in its grace too."""
    job = read(release, "preempt-cancel-0.3", kind)
    assert job.preempt_time is not None
    assert job.end_time == (job.preempt_time + 20 if kind == "json" else None)


def test_script_that_has_exited_by_itself() -> None:
    """Only JSON distinguishes it from a cancelled job."""
    job = read("24.11", "exits-0.3", "json")
    assert (job.state, ending(job, float(job.end_time or 0))) == ("COMPLETED", Ending.NOTHING)
    guessed = read("22.05", "exits-0.3", "txt")
    assert ending(guessed, float(guessed.end_time or 0)) == Ending.CANCELLED


def test_script_that_has_failed_by_itself() -> None:
    job = JobState(JOB, "UNKNOWN", frozenset({"COMPLETING"}), reason="NonZeroExitCode", end_time=1000)
    assert ending(job, 1000.0) == Ending.NOTHING

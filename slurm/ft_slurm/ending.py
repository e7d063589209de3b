"""What slurmctld has decided about a job whose processes got a SIGTERM: who is ending it, and why."""

from enum import StrEnum, unique

from ft_slurm.records import JobState


@unique
class Ending(StrEnum):
    """Why a job comes to its end. NOTHING: slurmctld has decided nothing; a signal came from somewhere else."""

    NOTHING = "nothing"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"


def ending(job: JobState, now: float) -> Ending:
    """Why the job is coming to its end, as slurmctld tells it; `now` in seconds since the epoch."""
    if job.preempt_time is not None and job.preempt_time <= now + 1:
        return Ending.PREEMPTED
    if job.state == "TIMEOUT" or job.reason == "TimeLimit":
        return Ending.TIME_LIMIT
    if job.state == "PENDING" or "REQUEUED" in job.flags:
        return Ending.REQUEUED
    if job.state == "CANCELLED":
        return Ending.CANCELLED
    return Ending.NOTHING

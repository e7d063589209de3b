"""Finds out why a job ends whose processes have got a SIGTERM, from slurmctld's record of it at that moment.

Measured on 22.05 and 24.11, 0.3 s and 2 s after the signal (tests/ft_slurm/recorded):

| | JSON's state | text's state | other evidence |
| --- | --- | --- | --- |
| scancel | CANCELLED COMPLETING | COMPLETING | EndTime is now |
| the time limit | TIMEOUT COMPLETING | COMPLETING | Reason=TimeLimit, EndTime is now |
| preemption, within GraceTime | RUNNING | RUNNING | PreemptTime; JSON's end_time is the grace's end |
| preemption without, CANCEL | PREEMPTED COMPLETING | COMPLETING | PreemptTime |
| preemption without, REQUEUE | PENDING COMPLETING | COMPLETING | JSON: preempt_time; text: as scontrol requeue |
| scontrol requeue | PENDING COMPLETING | COMPLETING | Restarts is one more, EndTime unknown or a limit away |

No flag such as REQUEUED is there, and Reason is None except for the time limit. An allocation of salloc or srun has the
same record as a batch job. A job that is cancelled within its grace is CANCELLED in JSON; its text is that of a
preempted job. The grace was over 20 to 24 s after PreemptTime with GraceTime=20, and SIGKILL came KillWait later.
"""

from enum import StrEnum, unique

from ft_slurm.records import HIDDEN, JobState

SKEW = 30.0
"""Seconds that slurmctld's clock may be ahead of ours; half of the shortest time limit."""


@unique
class Ending(StrEnum):
    """The reason for a job's end. NOTHING: slurmctld has decided nothing, or the job ends by itself."""

    NOTHING = "nothing"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"


_BY_STATE = {
    "CANCELLED": Ending.CANCELLED,
    "TIMEOUT": Ending.TIME_LIMIT,
    "DEADLINE": Ending.TIME_LIMIT,
    "PREEMPTED": Ending.PREEMPTED,
    "PENDING": Ending.REQUEUED,
}


def ending(job: JobState, now: float) -> Ending:
    """Return why the job ends, for a process that runs in it; `now` is in seconds since the epoch.

    Text alone (22.05) does not distinguish a cancelled job from one whose batch script has just exited with 0.
    """
    if job.state == "PENDING" and job.preempt_time is not None:
        return Ending.PREEMPTED
    if job.state in _BY_STATE:
        return _BY_STATE[job.state]
    if job.state in ("RUNNING", "SUSPENDED"):
        return Ending.NOTHING if job.preempt_time is None else Ending.PREEMPTED
    return _beneath_completing(job, now) if job.state == HIDDEN else Ending.NOTHING


def _beneath_completing(job: JobState, now: float) -> Ending:
    if job.reason == "TimeLimit":
        return Ending.TIME_LIMIT
    if job.preempt_time is not None:
        return Ending.PREEMPTED
    if job.end_time is None or job.end_time > now + SKEW:
        return Ending.REQUEUED
    # A script that failed has a reason of its own, such as NonZeroExitCode.
    return Ending.NOTHING if job.reason else Ending.CANCELLED

"""Who runs a job again, a preempted one above all: Slurm itself, or whoever asks it to.

Since 24.05 slurmctld marks a job while it is in its GraceTime (GRACE_PREEMPT, slurmctld/job_mgr.c and proc_req.c): one
that ends meanwhile is requeued where its partition's PreemptMode says so. The mark outlives a `scontrol requeue` of
that time, so that the next run's end, a success too, would be taken for a preemption, and the job be run once more
(measured on 24.11). Before 24.05 there is no mark: a job that ends within its grace has just ended (22.05: FAILED).
"""

from ft_slurm.records import JobState

MARKS_SINCE = (24, 5)


def is_requeued(before: JobState, now: JobState) -> bool:
    """Whether somebody has done it since `before`."""
    return now.restart_count != before.restart_count or now.state == "PENDING"


def in_grace(job: JobState) -> bool:
    """Preempted, and not yet killed."""
    return job.preempt_time is not None and job.state == "RUNNING"


def requeues_itself(job: JobState, release: tuple[int, int], mode: str) -> bool:
    """Whether Slurm runs this job, which is in its grace, again as soon as it ends; `mode`: its partition's
    PreemptMode as Slurm writes it."""
    return job.requeue and release >= MARKS_SINCE and "REQUEUE" in mode.upper().split(",")

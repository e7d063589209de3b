"""Decides whether Slurm runs a preempted job again by itself, or has to be asked for a requeue.

Since 24.05 slurmctld marks a job that is in its GraceTime (GRACE_PREEMPT, slurmctld/job_mgr.c and proc_req.c): if the
job ends meanwhile, slurmctld requeues it where its partition's PreemptMode is REQUEUE. The mark outlives a `scontrol
requeue` of that time, so that the next run's end, a success too, would count as a preemption, and the job would run
once more (measured on 24.11). Before 24.05 there is no mark: a job that ends within its grace is not requeued (22.05:
FAILED).
"""

from ft_slurm.records import JobState

MARKS_SINCE = (24, 5)


def is_requeued(before: JobState, now: JobState) -> bool:
    """Return whether the job has been requeued since `before`."""
    return now.restart_count != before.restart_count or now.state == "PENDING"


def in_grace(job: JobState) -> bool:
    """Return whether the job is preempted, and not yet killed."""
    return job.preempt_time is not None and job.state == "RUNNING"


def requeues_itself(job: JobState, release: tuple[int, int], mode: str) -> bool:
    """Return whether Slurm runs this job, which is in its grace, again as soon as it ends.

    `mode` is its partition's PreemptMode as Slurm writes it.
    """
    return job.requeue and release >= MARKS_SINCE and "REQUEUE" in mode.upper().split(",")

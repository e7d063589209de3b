"""The last deeds of the node whose coordinator has closed the job: its end in the job's comment, a requeue, and the
job's end in Slurm when the batch script died with its host (design section 8)."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ft_slurm import completion, nodelist
from ft_slurm.client import open_client
from ft_slurm.environment import StepEnvironment
from ft_slurm.errors import SlurmError
from ft_supervisor.core.model import Again
from ft_supervisor.core.orders import Closed
from ft_supervisor.core.ranks import unfold
from ft_supervisor.daemon import accounting, expedited
from ft_supervisor.daemon.identity import LOCAL
from ft_supervisor.daemon.signals import Signals
from ft_supervisor.observe.background import Background, Hangs
from ft_supervisor.process.log import file_failed, log

LOOK_PAUSE = 200
"""Milliseconds between two looks whether it is done."""

REQUEUE_BOUND = 10.0
"""Seconds for each of the two calls that it takes."""

SIGNAL_BOUND = 2.0
"""Seconds that it still gets after a signal."""


@dataclass(frozen=True)
class BatchJob:
    """The job that this step is part of. `host` runs its batch script, if it has one."""

    job_id: int
    step_id: int
    restart_count: int
    host: str


def of_step(step: StepEnvironment, environ: Mapping[str, str]) -> BatchJob | None:
    """None where no Slurm is, and where the variable that names the job's nodes is missing or no list."""
    if environ.get(LOCAL) == "1":
        return None
    try:
        names = nodelist.expand(environ.get("SLURM_JOB_NODELIST", ""))
    except SlurmError:
        return None
    # Slurm starts the batch script on the first of the job's nodes.
    return BatchJob(step.job_id, step.step_id, step.restart_count, names[0]) if names else None


def last_deed(job: BatchJob, closed: Closed, nodes: Sequence[str], signals: Signals, *, comment: bool) -> None:
    """What this job's end asks of the node whose coordinator has closed it. `nodes`: their names by infra_rank;
    `comment`: what the policy says."""
    if comment:
        accounting.comment(job.job_id, f"{job.job_id}.{job.step_id}.{job.restart_count}", closed)
    expedited.settle(job.job_id, job.restart_count, closed.verdict.exit_code)
    if closed.verdict.again is Again.REQUEUE:
        requeue(job, os.environ)
    elif job.host in nodes and nodes.index(job.host) in unfold(closed.lost):
        end(job, closed.verdict.exit_code, signals)


def requeue(job: BatchJob, environ: Mapping[str, str]) -> None:
    """Have Slurm run the job again, which ends what runs of it, us too. Without Slurm's commands here `launch` can."""

    def work() -> None:
        client = open_client(environ)
        state = client.job(job.job_id, timeout=REQUEUE_BOUND)
        if state is not None and state.restart_count == job.restart_count:
            if client.requeue(state, timeout=REQUEUE_BOUND):
                log("requeued", job=state.name)
            else:
                log("slurm_requeues", job=state.name)

    asking = Background("requeue", work)
    try:
        asking.result(2 * REQUEUE_BOUND)
    except (SlurmError, Hangs) as error:
        log("not_requeued", "warning", job=job.job_id, why=str(error), does_it=f"scontrol requeue {job.job_id}")


def end(job: BatchJob, code: int, signals: Signals) -> None:
    """End the job with this exit code, as `completion.complete` can; for minutes, or until a signal asks us to go."""
    work = Background(
        "ending the job",
        lambda: completion.complete(job.job_id, job.step_id, code, restart_count=job.restart_count, log=log),
        file_failed,
    )
    poll = select.poll()
    poll.register(signals.fileno(), select.POLLIN)
    while not work.wait(0):
        poll.poll(LOOK_PAUSE)
        if names := signals.take():
            # A job that has just been completed is signalled too.
            if not work.wait(SIGNAL_BOUND):
                why, ends_it = f"{names[0]} came", f"scancel {job.job_id}"
                log("job_left_running", "warning", job=job.job_id, why=why, ends_it=ends_it)
            return

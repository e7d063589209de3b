"""The last deeds of the node whose coordinator has closed the job: its end in the job's comment, a requeue, and the
job's end in Slurm when the batch script cannot bring it (docs/internals/slurm.md, The batch host dies).

Two things are known then: which nodes the coordinator does not hear any more, and, from one question, what slurmctld
makes of the batch host. Both are needed. A host that has just died is known to the coordinator first; a host whose
slurmd has died, or that slurmctld cannot reach, trains on, and only slurmctld knows that its script cannot end the job.

    the batch host is      the coordinator has lost it          it has not
    in the job             wait until Slurm gives it up         nothing: its script ends the job
    in the job, silent     the same                             the same, but nothing once it answers
    not in the job         end the job                          end the job

Where the batch host is this very node, its script runs beside us, and waits for us: then nothing is waited for.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ft_slurm import completion, nodelist
from ft_slurm.client import open_client
from ft_slurm.completion import BatchHost
from ft_slurm.environment import StepEnvironment
from ft_slurm.errors import SlurmError
from ft_supervisor.core.model import KILL_BOUND, Again, Job, Outcome, Verdict
from ft_supervisor.core.orders import Closed
from ft_supervisor.core.ranks import unfold
from ft_supervisor.daemon import accounting, expedited
from ft_supervisor.daemon.completing import Completing
from ft_supervisor.daemon.identity import LOCAL
from ft_supervisor.daemon.signals import Signals
from ft_supervisor.observe.background import Background, Hangs
from ft_supervisor.process.log import log

LOOK_PAUSE = 0.2
"""Seconds between two looks whether it is done."""

REQUEUE_BOUND = 10.0
"""Seconds for each of the two calls that it takes."""

HOST_BOUND = 4.0
"""Seconds for the question about the batch host, asked while the comment is written (accounting.BOUND)."""

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


def last_deed(job: BatchJob, closed: Closed, run: Job, here: str, signals: Signals) -> None:
    """What this job's end asks of the node whose coordinator has closed it; `here` is that node's name."""
    asked = _ask(job)
    if run.settings.accounting.comment:
        accounting.comment(job.job_id, f"{job.job_id}.{job.step_id}.{job.restart_count}", closed)
    expedited.settle(job.job_id, job.restart_count, closed.verdict.exit_code)
    if closed.verdict.again is Again.REQUEUE and requeue(job, os.environ):
        return
    if is_ours_to_end(job, closed, run, here, asked):
        lost = is_lost(job, closed, run, here)
        end(job, closed.verdict.exit_code, Path(run.run_folder), signals, host_lost=lost)


def stand_in(job: BatchJob, verdict: Verdict, run: Job, here: str, signals: Signals) -> None:
    """The same on another node, which the coordinator has named as Slurm did not answer its own.

    As long as Slurm has the batch host, `launch` there sees to everything. Nodes may need their last grace still, of
    which only the coordinator hears: it is waited for, or until `launch` has no more patience and ends srun.
    """
    if not is_ours_to_end(job, Closed(verdict), run, here, _ask(job)):
        return
    grace = 0.0 if verdict.outcome is Outcome.SUCCESS else run.last_grace(verdict) + KILL_BOUND
    seconds = grace + run.timeouts.close_grace
    log("stands_in", job=job.job_id, host=job.host, seconds=seconds)
    _wait_for_signal(seconds, signals)
    expedited.settle(job.job_id, job.restart_count, verdict.exit_code)
    if verdict.again is not Again.REQUEUE or not requeue(job, os.environ):
        end(job, verdict.exit_code, Path(run.run_folder), signals, host_lost=False)


def _ask(job: BatchJob) -> Background[BatchHost]:
    question = partial(completion.batch_host, job.job_id, restart_count=job.restart_count, timeout=HOST_BOUND)
    return Background("the batch host", question)


def _wait_for_signal(seconds: float, signals: Signals) -> str:
    """The name of one that asks us to go; empty when none has come in time."""
    end = time.monotonic() + seconds
    poll = select.poll()
    poll.register(signals.fileno(), select.POLLIN)
    while not (names := signals.take()) and (left := end - time.monotonic()) > 0:
        poll.poll(left * 1000)
    return names[0] if names else ""


def is_ours_to_end(job: BatchJob, closed: Closed, run: Job, here: str, asked: Background[BatchHost]) -> bool:
    """The table above. Where Slurm does not answer, what the coordinator knows must do."""
    if is_lost(job, closed, run, here):
        return True
    try:
        host = asked.result(HOST_BOUND)
    except (SlurmError, Hangs) as error:
        log("batch_host_unknown", job=job.job_id, host=job.host, why=str(error))
        return False
    return host is BatchHost.GONE or (host is BatchHost.SILENT and job.host != here)


def requeue(job: BatchJob, environ: Mapping[str, str]) -> bool:
    """Have Slurm run the job again, which ends what runs of it, us too. Without Slurm's commands here `launch` can.

    Whether that is done, or Slurm does it by itself; else the job has to end.
    """

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
        return False
    return True


def is_lost(job: BatchJob, closed: Closed, run: Job, here: str) -> bool:
    """Whether the coordinator has lost the batch host. Where that is this very node, only its agent can be meant."""
    return job.host != here and job.host in run.nodes and run.nodes.index(job.host) in unfold(closed.lost)


def end(job: BatchJob, code: int, folder: Path, signals: Signals, *, host_lost: bool) -> None:
    """End the job with this exit code, as `completion.complete` can; for minutes, or until a signal asks us to go."""
    work = Completing(job.job_id, job.step_id, job.restart_count, code, folder, host_lost=host_lost)
    while not work.wait(0):
        if name := _wait_for_signal(LOOK_PAUSE, signals):
            # A job that has just been completed is signalled too.
            if not work.wait(SIGNAL_BOUND):
                work.give_up(f"{name} came")
            return

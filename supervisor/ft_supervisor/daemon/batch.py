"""The job's end in Slurm: the calls that core/daemon/last_deed.py decides on, each of them bounded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ft_slurm import completion, nodelist
from ft_slurm.environment import StepEnvironment
from ft_slurm.errors import SlurmError
from ft_supervisor.core.daemon.last_deed import HOST_BOUND
from ft_supervisor.core.protocol import actions
from ft_supervisor.core.protocol.actions import DaemonAction
from ft_supervisor.core.protocol.events import BatchHost, BatchHostAnswered, DaemonEvent, Deed, DeedDone
from ft_supervisor.daemon import accounting, expedited, requeueing
from ft_supervisor.daemon.completing import Completing
from ft_supervisor.daemon.identity import LOCAL
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import log


@dataclass(frozen=True)
class BatchJob:
    """The job that this step is part of. `host` runs its batch script, if it has one."""

    job_id: int
    step_id: int
    restart_count: int
    host: str


def of_step(step: StepEnvironment, environ: Mapping[str, str]) -> BatchJob | None:
    """Return the job of this step; None without Slurm, or if the variable with its nodes is missing or no list."""
    if environ.get(LOCAL) == "1":
        return None
    try:
        names = nodelist.expand(environ.get("SLURM_JOB_NODELIST", ""))
    except SlurmError:
        return None
    # Slurm starts the batch script on the first of the job's nodes.
    return BatchJob(step.job_id, step.step_id, step.restart_count, names[0]) if names else None


def requeue(job: BatchJob, environ: Mapping[str, str]) -> bool:
    """Have Slurm run the job again, which ends what runs of it, us too. Without Slurm's commands here `launch` can.

    Whether that is done, or Slurm does it by itself; else the job has to end.
    """

    try:
        done = requeueing.requeue(job.job_id, job.restart_count, environ)
    except (SlurmError, Hangs) as error:
        log("not_requeued", "warning", job=job.job_id, why=str(error), does_it=f"scontrol requeue {job.job_id}")
        return False
    if done is not None:
        if done.asked:
            log("requeued", job=done.name)
        else:
            log("slurm_requeues", job=done.name)
    return True


class JobEnding:
    """Carries out what the machine asks of Slurm at the job's end, each in a thread: `perform`, and later `collect`.

    Every answer comes within the bounds of accounting, expedited, `requeue` and ft_slurm.completion, but for the one
    about the batch host, which may hang: the machine waits no longer than it needs to.
    """

    def __init__(self, job: BatchJob, run_folder: Path) -> None:
        self.job = job
        self.used = False
        """Whether anything was asked of Slurm."""
        self._run_folder = run_folder
        self._asking: Background[BatchHostAnswered] | None = None
        self._doing: Background[DeedDone] | None = None
        self._completing: Completing | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer may come soon."""
        return any(work is not None for work in (self._asking, self._doing, self._completing))

    def perform(self, action: DaemonAction) -> None:
        """Begin what the action says; nothing for those that do not concern Slurm."""
        job = self.job
        match action:
            case actions.AskBatchHost():
                self.used = True
                self._asking = Background("the batch host", lambda: _ask(job))
            case actions.WriteComment(text, head):
                self._do(Deed.COMMENT, lambda: accounting.comment(job.job_id, text, head))
            case actions.ForbidRequeue(code):
                self._do(Deed.FORBID_REQUEUE, lambda: expedited.settle(job.job_id, job.restart_count, code))
            case actions.RequeueJob():
                self._do(Deed.REQUEUE, lambda: requeue(job, os.environ))
            case actions.CompleteJob(code, host_lost):
                self._completing = Completing(
                    job.job_id, job.step_id, job.restart_count, code, self._run_folder, host_lost=host_lost
                )
            case actions.StopCompleting(why) if self._completing is not None:
                self._completing.give_up(why)

    def _do(self, deed: Deed, work: Callable[[], bool]) -> None:
        self._doing = Background(deed.value, lambda: DeedDone(deed, work()))

    def collect(self) -> list[DaemonEvent]:
        """Return the answers that have come since the last call. Never waits."""
        events: list[DaemonEvent] = []
        if self._asking is not None and self._asking.wait(0):
            events.append(self._asking.result(0))
            self._asking = None
        if self._doing is not None and self._doing.wait(0):
            events.append(self._doing.result(0))
            self._doing = None
        if self._completing is not None and self._completing.wait(0):
            events.append(DeedDone(Deed.COMPLETE))
            self._completing = None
        return events


def _ask(job: BatchJob) -> BatchHostAnswered:
    try:
        host = completion.batch_host(job.job_id, restart_count=job.restart_count, timeout=HOST_BOUND)
    except SlurmError as error:
        return BatchHostAnswered(None, str(error))
    return BatchHostAnswered(BatchHost(host.value))


assert {host.value for host in BatchHost} == {host.value for host in completion.BatchHostState}

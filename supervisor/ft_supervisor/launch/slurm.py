"""Requests to Slurm at the job's end, each within a bound and with an event for the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ft_slurm import completion
from ft_slurm.allocation import Allocation
from ft_slurm.completion import BatchHostState
from ft_slurm.errors import JobOver, NoCommands, SlurmError
from ft_supervisor.core.launch.interface import HostAnswered, Requeued, RequeueForbidden
from ft_supervisor.daemon import expedited, requeueing
from ft_supervisor.daemon.completing import Completing
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import log
from ft_supervisor.run_folder import runs

HOST_BOUND = 4.0
"""Seconds for Slurm to answer whether this node is in the job."""


def forbid_requeue(job: Allocation, code: int, environ: Mapping[str, str]) -> RequeueForbidden:
    """End the job for good. The coordinator's node has done it already where there was a verdict and it has Slurm's
    commands."""
    try:
        return RequeueForbidden(expedited.forbid(job.job_id, job.restart_count, code, environ))
    except (NoCommands, JobOver):
        return RequeueForbidden()
    except (SlurmError, Hangs) as error:
        return RequeueForbidden(problem=str(error))


def requeue(job: Allocation, environ: Mapping[str, str], begins: Callable[[], None]) -> Requeued:
    """Run the job again. The coordinator's node has done it already where it has Slurm's commands; that ends this
    process too. `begins`: see requeueing.requeue."""
    try:
        requeueing.requeue(job.job_id, job.restart_count, environ, begins)
    except (SlurmError, Hangs) as error:
        return Requeued(str(error))
    return Requeued()


def ask_for_host(job: Allocation) -> HostAnswered:
    """Ask whether Slurm has taken this node out of the job, because its slurmd has died or slurmctld could not reach
    it.

    Then slurmctld drops the node's message that the batch script has ended (ft_slurm.completion), and the job stays
    RUNNING on its other nodes. A node that is in the job is left alone: its script ends the job, perhaps with another
    exit code than ours. This is one request to slurmctld, for which a healthy job's end waits; about 0.1 s.
    """
    question = partial(completion.batch_host, job.job_id, restart_count=job.restart_count, timeout=HOST_BOUND)
    try:
        host = Background("the batch host", question).result(HOST_BOUND + 1.0)
    except NoCommands:
        return HostAnswered(gone=False)
    except (SlurmError, Hangs) as error:
        log("batch_host_unknown", job=job.job_id, host=job.host, why=str(error))
        return HostAnswered(gone=False)
    return HostAnswered(gone=host is BatchHostState.GONE)


def completing(job: Allocation, run_folder: Path | None, code: int) -> Completing:
    """Begin to end the job with this code. `run_folder`: of the run whose verdict was read; without one, steps that
    still run are waited for."""
    run = runs.parse(run_folder.name) if run_folder is not None else None
    step_id = run.step_id if run else None
    return Completing(job.job_id, step_id, job.restart_count, code, run_folder, host_lost=False)

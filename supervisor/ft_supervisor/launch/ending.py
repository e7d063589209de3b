"""The job's end in Slurm, where the batch script's own end no longer counts there.

Once Slurm has taken the script's node out of the job, as its slurmd has died or slurmctld did not reach it, slurmctld
drops what the node says of the script's end (ft_slurm.completion), and the job stays RUNNING on its other nodes. A node
that is in the job is left alone: its script ends the job, with a code that may be another one than ours.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ft_slurm import completion
from ft_slurm.allocation import Allocation
from ft_slurm.completion import BatchHost
from ft_slurm.errors import NoCommands, SlurmError
from ft_supervisor.daemon.completing import Completing
from ft_supervisor.observe import runs
from ft_supervisor.observe.background import Background, Hangs
from ft_supervisor.process.log import log

BOUND = 4.0
"""Seconds that Slurm gets to say whether our node is in the job."""


def begin(job: Allocation, run_folder: Path | None, exit_code: int) -> Completing | None:
    """Have the job end with this code, if nothing else can end it; None where the script does.

    `run_folder`: of the run whose verdict we have; without one, steps that still run are waited for. One question to
    slurmctld, which a healthy job's end waits for; about 0.1 s.
    """
    if job.host is None:
        return None
    question = partial(completion.batch_host, job.job_id, restart_count=job.restart_count, timeout=BOUND)
    try:
        if Background("the batch host", question).result(BOUND + 1.0) is not BatchHost.GONE:
            return None
    except NoCommands:
        return None
    except (SlurmError, Hangs) as error:
        log("batch_host_unknown", job=job.job_id, host=job.host, why=str(error))
        return None
    run = runs.parse(run_folder.name) if run_folder is not None else None
    step_id = run.step_id if run else None
    return Completing(job.job_id, step_id, job.restart_count, exit_code, run_folder, host_lost=False)

"""Ends a job for good that Slurm would run again after each end (ft_slurm.expedite), when its verdict is final."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ft_slurm.client import open_client
from ft_slurm.errors import JobOver, NoCommands, SlurmError
from ft_supervisor.core.protocol.model import INTERRUPTED
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import log

BOUND = 4.0
"""Seconds for the whole of it."""


def forbid(job_id: int, restart_count: int, code: int, environ: Mapping[str, str]) -> bool:
    """Have Slurm leave this run of the job ended with this exit code. Returns whether Slurm had to be told.

    Not with INTERRUPTED, where trying again may help. Waits at most a second longer than BOUND. Raises SlurmError and
    Hangs; NoCommands without Slurm's commands.
    """
    if code == INTERRUPTED:
        return False
    work = Background(
        "the job's requeue", lambda: open_client(environ).end_for_good(job_id, restart_count, timeout=BOUND)
    )
    return work.result(BOUND + 1.0)


def settle(job_id: int, restart_count: int, code: int) -> bool:
    """`forbid`, with a line in the log where Slurm had to be told, or where that failed. Returns False if it failed."""
    try:
        if forbid(job_id, restart_count, code, os.environ):
            log("requeue_forbidden", job=job_id, exit_code=code, why="--requeue=expedite")
    except (
        NoCommands,
        JobOver,
    ):  # `launch` does it; and what Slurm itself has ended (scancel) does not run again
        return False
    except (SlurmError, Hangs) as error:
        does_it = f"scontrol update jobid={job_id} requeue=0"
        log("requeue_not_forbidden", "warning", job=job_id, why=str(error), does_it=does_it)
        return False
    return True

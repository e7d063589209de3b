"""Writes how the job ended into its Comment, as one line that `sacct` and `squeue` show.

slurmctld takes the comment of a job that has its nodes, and hands it to the database when the job ends (with
AccountingStoreFlags=job_comment). Once it has ended the job itself (scancel, the time limit) it takes none any more:
IS_JOB_FINISHED in job_mgr.c, _update_job().
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ft_slurm.client import open_client
from ft_slurm.errors import JobOver, NoCommands, SlurmError
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import log

BOUND = 4.0
"""Seconds for the whole of it: less than `launch` gives srun after a verdict."""


class NoRoom(SlurmError):
    """The comment is full: users or other tools have written too much into it."""


def write(job_id: int, text: str, beginning: str, environ: Mapping[str, str]) -> None:
    """Set our part of the job's comment to `text`, unless it starts with `beginning`: this run's end is recorded.

    Waits at most a second longer than BOUND. Raises SlurmError and Hangs; JobOver where slurmctld has ended the job.
    """
    work = Background(
        "the job's comment", lambda: open_client(environ).set_comment(job_id, text, keep=beginning, timeout=BOUND)
    )
    if not work.result(BOUND + 1.0):
        raise NoRoom("what others wrote there leaves no room")


def comment(job_id: int, text: str, beginning: str) -> bool:
    """`write`, with one line in the log that says whether the comment was written; so does what is returned."""
    try:
        write(job_id, text, beginning, os.environ)
        log("comment_written", job=job_id, comment=text)
    except (JobOver, NoCommands) as error:  # expected; without commands here `launch` writes it
        log("comment_not_written", job=job_id, why=str(error))
        return False
    except (SlurmError, Hangs) as error:
        log("comment_not_written", "warning", job=job_id, why=str(error), comment=text)
        return False
    return True

"""Asks Slurm to run the job again: for the node whose coordinator has closed the job, and for `launch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ft_slurm.client import open_client
from ft_supervisor.process.background import Background

REQUEUE_BOUND = 10.0
"""Seconds for each of the two calls that a requeue takes."""


@dataclass(frozen=True)
class Requeue:
    """A job that runs again. `asked`: Slurm did it because it was asked; else it does it by itself."""

    name: str
    asked: bool


def requeue(
    job_id: int, restart_count: int, environ: Mapping[str, str], begins: Callable[[], None] = lambda: None
) -> Requeue | None:
    """Have Slurm run this run of the job again, which ends all that runs of it, this process too.

    None where the job has ended or is at a later run: then nothing is done. `begins` is called in another thread before
    Slurm is asked. Waits at most 2 * REQUEUE_BOUND. Raises SlurmError and Hangs.
    """

    def work() -> Requeue | None:
        client = open_client(environ)
        state = client.job(job_id, timeout=REQUEUE_BOUND)
        if state is None or state.restart_count != restart_count:
            return None
        begins()
        return Requeue(state.name, client.requeue(state, timeout=REQUEUE_BOUND))

    return Background("requeue", work).result(2 * REQUEUE_BOUND)

"""Defines what a job asks of Slurm while it runs. Two clients do it: with Slurm's commands, and with pyslurm.

Every question goes to slurmctld or slurmdbd, so only one node of a job may ask them.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ft_slurm import pyslurm_client
from ft_slurm.cli_client import CliClient
from ft_slurm.command import TIMEOUT
from ft_slurm.comment import MARK
from ft_slurm.errors import NoCommands
from ft_slurm.pyslurm_client import PyslurmClient
from ft_slurm.records import AccountingRecord, JobState, JobStep, NodeState


class SlurmClient(Protocol):
    """Slurm's answers for one caller.

    Every method raises Unanswered, with one line, when Slurm did not answer within `timeout` seconds or when its answer
    makes no sense: trying again may help. A method takes at most KILL_BOUND (ft_slurm.command) longer than `timeout`.

    The cluster is the one that slurm.conf names; SLURM_CLUSTERS is ignored. Threads must not share a client.
    """

    def job(self, job_id: int, *, timeout: float = TIMEOUT) -> JobState | None:
        """Return the job; None when slurmctld has forgotten it, MinJobAge (300 s) after its end."""
        ...

    def nodes(self, names: Sequence[str], *, timeout: float = TIMEOUT) -> dict[str, NodeState]:
        """Return those of the nodes that Slurm has, in the order of `names`."""
        ...

    def running_steps(self, job: JobState, *, timeout: float = TIMEOUT) -> tuple[JobStep, ...]:
        """Return the job's steps that are not over, as far as slurmctld knows."""
        ...

    def configuration(self, *, timeout: float = TIMEOUT) -> dict[str, str]:
        """Return slurm.conf as slurmctld uses it: at least `PluginDir`, `SlurmdTimeout` (`300 sec`) and `KillWait`."""
        ...

    def set_comment(
        self, job_id: int, text: str, *, mark: str = MARK, keep: str = "", timeout: float = TIMEOUT
    ) -> bool:
        """Set the part of the job's comment that has our mark to `text` (`comment.with_part`).

        Leaves the rest of the comment as it is, and also our part when that begins with `keep` already (`comment.has`).
        Returns whether our part is there now: it is not where the rest leaves no room for it. Slurm cannot update a
        comment atomically: what another writes between our reading and our writing is lost. Raises Refused, and JobOver
        after the job's end.
        """
        ...

    def requeue(self, job: JobState, *, timeout: float = TIMEOUT) -> bool:
        """Ask Slurm to run this job, or this array task, again, and to kill what still runs of it.

        Returns whether Slurm was asked. It is not asked where the job has been requeued already, nor where Slurm will
        requeue it by itself after its end (ft_slurm.preemption). Raises Refused where the job may not be requeued.
        """
        ...

    def end_for_good(self, job_id: int, restart_count: int, *, timeout: float = TIMEOUT) -> bool:
        """Keep Slurm from running the job again after this run, where it would do that for any exit code
        (ft_slurm.expedite).

        Returns whether that was necessary. Call it before the batch script ends.
        """
        ...

    def accounting(self, job_id: int, *, timeout: float = TIMEOUT) -> tuple[AccountingRecord, ...]:
        """Return all records of the job and its steps, of earlier runs too, in the order of their start; () while there
        are none.

        slurmdbd has a job's end some seconds after it (22.05: up to a minute).
        """
        ...


def open_client(environ: Mapping[str, str]) -> SlurmClient:
    """Return a client of Slurm's commands where these are in PATH, else of pyslurm where that works.

    The commands come first: they fit the cluster's release, and show more (the accounting of a job's earlier runs, one
    task of an array, the state beneath COMPLETING). Raises NoCommands, with the reason why neither works.
    """
    try:
        return CliClient(environ)
    except NoCommands as no_commands:
        if unfit := pyslurm_client.why_not(environ):
            raise NoCommands(f"{no_commands}, and {unfit}") from None
    return PyslurmClient(environ)

"""What a job needs of Slurm while it runs, whoever asks: Slurm's commands, or pyslurm where a site has it.

Every question goes to slurmctld or slurmdbd, so only one node of a job may ask.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ft_slurm import pyslurm_client
from ft_slurm.cli_client import CliClient
from ft_slurm.command import TIMEOUT
from ft_slurm.comment import MARK
from ft_slurm.errors import NoCommands
from ft_slurm.pyslurm_client import PyslurmClient
from ft_slurm.records import AccountingRecord, JobState, NodeState, Step


class SlurmClient(Protocol):
    """Every method raises Unanswered, with one line, when Slurm did not answer within `timeout` seconds or what it
    answered makes no sense: trying again may help. It takes at most KILL_BOUND (ft_slurm.command) longer.

    The cluster is the one that slurm.conf names, whatever SLURM_CLUSTERS says. Not to be shared between threads.
    """

    def job(self, job_id: int, *, timeout: float = TIMEOUT) -> JobState | None:
        """None when slurmctld has forgotten the job, MinJobAge (300 s) after its end."""
        ...

    def nodes(self, names: Sequence[str], *, timeout: float = TIMEOUT) -> dict[str, NodeState]:
        """Those of the nodes that Slurm knows, in the order asked for."""
        ...

    def running_steps(self, job: JobState, *, timeout: float = TIMEOUT) -> tuple[Step, ...]:
        """The job's steps that are not over, as far as slurmctld knows."""
        ...

    def configuration(self, *, timeout: float = TIMEOUT) -> dict[str, str]:
        """slurm.conf as slurmctld uses it: at least `PluginDir`, `SlurmdTimeout` (`300 sec`) and `KillWait`."""
        ...

    def set_comment(
        self, job_id: int, text: str, *, mark: str = MARK, keep: str = "", timeout: float = TIMEOUT
    ) -> bool:
        """Makes `text` the job's comment's part with our mark (`comment.with_part`); what others wrote there stays, and
        so does a part of ours that says `keep` already (`comment.has`).

        Whether a part of ours is there now: not where what others wrote leaves no room for it. Whoever writes between
        our reading and our writing is overwritten: Slurm has no better way. Raises Refused, and JobOver after the end.
        """
        ...

    def requeue(self, job: JobState, *, timeout: float = TIMEOUT) -> bool:
        """Has Slurm run this run of the job again, or this array task, killing what runs of it; whether it was asked.

        It is not where that has been done already, nor where Slurm will do it by itself once the job has ended
        (ft_slurm.preemption). Raises Refused where the job may not be requeued.
        """
        ...

    def end_for_good(self, job_id: int, restart_count: int, *, timeout: float = TIMEOUT) -> bool:
        """Has Slurm leave this run of the job ended, whatever its exit code, where it would run it again
        (ft_slurm.expedite); whether it had to be told. To be called before the batch script ends."""
        ...

    def accounting(self, job_id: int, *, timeout: float = TIMEOUT) -> tuple[AccountingRecord, ...]:
        """All records of the job and its steps, older runs' too, in the order of their start; () while there are none.

        slurmdbd learns of a job's end some seconds after it (22.05: up to a minute).
        """
        ...


def open_client(environ: Mapping[str, str]) -> SlurmClient:
    """Slurm's commands where they are in PATH, else pyslurm where it works.

    The commands first: they fit the cluster whatever its release, and tell more (the accounting of a job's earlier
    runs, one task of an array, the state beneath COMPLETING). Raises NoCommands, which says why there is neither.
    """
    try:
        return CliClient(environ)
    except NoCommands as no_commands:
        if unfit := pyslurm_client.why_not(environ):
            raise NoCommands(f"{no_commands}, and {unfit}") from None
    return PyslurmClient(environ)

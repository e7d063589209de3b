"""What slurmctld says of a job, its steps and a node, asked by Slurm's own `scontrol`.

Each question is a call to slurmctld, so only one node of a job may ask. `scontrol -o` prints the same fields on 22.05
and 24.11 (measured); 22.05 as Debian has it knows no `scontrol --json`.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from ft_slurm import command
from ft_slurm.command import Unanswered
from ft_slurm.errors import SlurmError

TIMEOUT = 60.0
"""Seconds for one question. scontrol itself gave up after 18 s when slurmctld was away (24.11, MessageTimeout=10)."""
_STEP_OVER = ("COMPLETED", "COMPLETING", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


class NoCommands(SlurmError):
    """Slurm's commands are not here, as in most containers."""


@dataclass(frozen=True, slots=True)
class JobState:
    """One job, as slurmctld has it now.

    `nodes` is a host list expression without the nodes that slurmctld has taken out. `batch_host` stays the one that
    was taken out, until slurmctld is started anew: then it is the first of `nodes`, which never ran the script
    (measured on 22.05 and 24.11). `name` is what its steps are called by: that of an array's task has the array's
    number.
    """

    job_id: int
    name: str
    state: str
    has_batch_script: bool
    heterogeneous: bool
    restart_count: int
    batch_host: str
    nodes: str


@dataclass(frozen=True, slots=True)
class Step:
    """`name` is a number for each srun's, else `batch`, `extern` or `interactive`; `nodes` a host list expression.

    The `batch` step tells the script's host. Once that was taken out, 24.11 no longer lists it, while 22.05 goes on
    with it for good as RUNNING; a new slurmctld too (measured).
    """

    name: str
    nodes: str


class CliClient:
    """Asks with the `scontrol` of this PATH. Every method raises Unanswered when slurmctld did not answer."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises NoCommands."""
        path = shutil.which("scontrol", path=environ.get("PATH"))
        if path is None:
            raise NoCommands("there is no scontrol in PATH")
        self.scontrol = path
        # srun --clusters and a user's own setting: the question would go to another cluster
        self._environ = {key: value for key, value in environ.items() if key != "SLURM_CLUSTERS"}

    def job(self, job_id: int) -> JobState | None:
        """None when slurmctld has forgotten the job, MinJobAge (300 s) after its end."""
        done = self._show("job", str(job_id))
        for line in done.stdout.splitlines():  # a job array's first id has a line for each of its tasks
            if line.startswith(f"JobId={job_id} "):
                return _job(job_id, line)
        if "Invalid job id" in done.stderr:
            return None
        raise Unanswered(f"scontrol show job {job_id}: {done.problem}")

    def running_steps(self, job: JobState) -> tuple[Step, ...]:
        """The job's steps that are not over, as far as slurmctld knows."""
        done = self._show("step", str(job.job_id))
        lines = [line for line in done.stdout.splitlines() if line.startswith("StepId=")]
        if not lines and "not found" not in done.stdout + done.stderr:
            raise Unanswered(f"scontrol show step {job.job_id}: {done.problem}")
        own = f"StepId={job.name}."
        found = [line for line in lines if line.startswith(own) and not _field(line, "State").startswith(_STEP_OVER)]
        return tuple(Step(line.removeprefix(own).split(" ")[0], _field(line, "NodeList")) for line in found)

    def node(self, name: str) -> frozenset[str]:
        """The node's state and flags, such as DOWN and NOT_RESPONDING; none for a node that Slurm does not know."""
        done = self._show("node", name)
        if done.stdout.startswith("NodeName="):
            return frozenset(_field(done.stdout, "State").split("+"))
        if "not found" in done.stdout + done.stderr:
            return frozenset()
        raise Unanswered(f"scontrol show node {name}: {done.problem}")

    def configuration(self) -> dict[str, str]:
        """slurm.conf as slurmctld uses it: `PluginDir`, `SlurmdTimeout` (`300 sec`), ..."""
        done = self._ask("show", "config")
        lines = (line.partition(" = ") for line in done.stdout.splitlines())
        values = {key.strip(): value.strip() for key, equals, value in lines if equals}
        if "SlurmdTimeout" not in values:
            raise Unanswered(f"scontrol show config: {done.problem}")
        return values

    def _show(self, kind: str, name: str) -> command.Done:
        return self._ask("--oneliner", "show", kind, name)

    def _ask(self, *arguments: str) -> command.Done:
        return command.run([self.scontrol, *arguments], TIMEOUT, self._environ)


def _job(job_id: int, line: str) -> JobState:
    # Before UserId stands the name, in which a user may write anything.
    before, _, fields = line.partition(" UserId=")
    array, task = _field(before, "ArrayJobId"), _field(before, "ArrayTaskId")
    return JobState(
        job_id=job_id,
        name=f"{array}_{task}" if array and task else str(job_id),
        state=_field(fields, "JobState"),
        has_batch_script=_field(fields, "BatchFlag") not in ("", "0"),
        heterogeneous=bool(_field(before, "HetJobId")),
        restart_count=int(_field(fields, "Restarts") or 0),
        batch_host=_field(fields, "BatchHost"),
        nodes=_field(fields, "NodeList"),
    )


def _field(text: str, name: str) -> str:
    """The first field of that name; empty when there is none, or nothing in it."""
    match = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return match[1] if match and match[1] != "(null)" else ""

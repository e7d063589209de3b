"""Ends a batch job in Slurm when its batch script cannot: the script died with its host, or Slurm has taken that host
out of the job.

Such a job stays RUNNING until its time limit, even when all tasks on the other nodes have ended
(docs/internals/slurm.md, The batch host dies). Its owner may end it with slurm_complete_job, from any node.

A script on a host that was taken out may live on, where only slurmd has died or slurmctld does not reach the host.
slurmctld ignores the end of that script, which its slurmstepd reports (measured on 24.11; 22.05 still accepted it,
where it got through). Then only a completion ends the job. So `complete` ends it, on 22.05 too, where such a script
might have reported another exit code later.

A script whose host is in the job ends the job itself. A completion at the same time would decide by chance which exit
code counts, so `complete` leaves that script alone.
"""

import os
import time
from collections.abc import Iterable
from enum import StrEnum, unique
from typing import Protocol

from ft_slurm import libslurm
from ft_slurm.client import SlurmClient, open_client
from ft_slurm.command import TIMEOUT, remaining
from ft_slurm.errors import SlurmError, Unanswered
from ft_slurm.nodelist import expand
from ft_slurm.records import JobState, JobStep, NodeState

PAUSE = 5.0
"""Seconds between two attempts. Each is two or three calls to slurmctld, by one node of the job."""
MARGIN = 60.0
"""Seconds beyond SlurmdTimeout until slurmctld must have noticed that the batch host is silent. Measured on 22.05, with
a SlurmdTimeout of 300 s: NOT_RESPONDING 212 s after its death, DOWN only after 499 s; with 30 s: 27 s and 48 s."""
USUAL_SLURMD_TIMEOUT = 300.0
"""Seconds; Slurm's default, used until slurmctld has answered with its own value."""
_NOT_NOW = frozenset({"CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"})


@unique
class CompletionResult(StrEnum):
    """The result of `complete`. LEFT: the job is still there, and the log names the command that ends it."""

    COMPLETED = "completed"
    NOTHING = "nothing"
    LEFT = "left"


@unique
class BatchHostState(StrEnum):
    """State of the node that runs the batch script, by slurmctld.

    SILENT: it is in the job and does not answer. GONE: it was taken out of the job, or is DOWN. NONE: there is no
    script to wait for, because the job has none, is over, or was started anew.
    """

    MEMBER = "member"
    SILENT = "silent"
    GONE = "gone"
    NONE = "none"


class Log(Protocol):
    """Writes one line."""

    def __call__(self, event: str, level: str = "info", **fields: object) -> None: ...


def batch_host(job_id: int, *, restart_count: int, timeout: float) -> BatchHostState:
    """Ask slurmctld once, with three questions that take `timeout` seconds together at most. Raises SlurmError."""
    end = time.monotonic() + timeout
    client = open_client(os.environ)
    job = client.job(job_id, timeout=remaining(end))
    if job is None or not job.alive or not job.has_batch_script or job.restart_count != restart_count:
        return BatchHostState.NONE
    return _batch_host(client, job, end)


def complete(
    job_id: int,
    step_id: int | None,
    exit_code: int,
    *,
    restart_count: int | None = None,
    host_lost: bool = True,
    log: Log,
) -> CompletionResult:
    """End the job with `exit_code` (0 to 255), as sacct shows it, if its batch script cannot any more.

    Call it when the caller's own step (None: it runs in none) has done everything else: all that still runs in the job
    is killed, with the caller, if it is in the step. Does nothing for a job without a batch script (salloc, a direct
    srun), for a job that has ended, and with `restart_count` for one that was started anew.

    Waits until no other step runs and slurmctld has given the batch host up, at most SlurmdTimeout + MARGIN. After that
    a host that does not answer Slurm counts as dead. A host that answers is left alone with its script, which can still
    end the job. While slurmctld is away, tries again; if it was away, every host counts as dead in the end. `host_lost`
    False: the caller still has contact to the host, so this does nothing once Slurm has contact too.

    Needs Slurm's library, and its commands or pyslurm. Blocks. Raises ValueError for a code outside of 0 to 255.
    """
    if not 0 <= exit_code <= 255:
        raise ValueError(f"exit code {exit_code}: from 0 to 255")
    return _Completion(job_id, step_id, exit_code, restart_count, host_lost, log).run()


class _LeftRunning(SlurmError):
    """The job cannot be completed, and stays."""


class _Completion:
    def __init__(
        self,
        job_id: int,
        step_id: int | None,
        exit_code: int,
        restart_count: int | None,
        host_lost: bool,
        log: Log,
    ) -> None:
        self._job_id = job_id
        self._step_id = step_id
        self._exit_code = exit_code
        self._restart_count = restart_count
        self._host_lost = host_lost
        self._log = log
        self._began = time.monotonic()
        self._slurmd_timeout = USUAL_SLURMD_TIMEOUT
        self._plugin_dir: str | None = None
        self._job: JobState | None = None
        self._said = ""
        self._called = False
        self._was_away = False

    def run(self) -> CompletionResult:
        try:
            client = open_client(os.environ)
            while True:
                last = self._time_left() <= 0
                try:
                    why: str | CompletionResult = self._look(client, last)
                except Unanswered as error:
                    why = str(error)
                    self._was_away = True
                if isinstance(why, CompletionResult):
                    return why
                if last:
                    raise _LeftRunning(why)
                self._waiting(why)
                time.sleep(max(0.0, min(PAUSE, self._time_left())))
        except SlurmError as error:
            return self._left(error)

    def _time_left(self) -> float:
        return self._began + self._slurmd_timeout + MARGIN - time.monotonic()

    def _look(self, client: SlurmClient, last: bool) -> CompletionResult | str:
        """Make one attempt. Return its result, or the reason for waiting. Raises SlurmError; Unanswered means: try
        again."""
        job = client.job(self._job_id)
        if job is None or not job.alive:
            return self._over("forgotten" if job is None else job.shown)
        self._job = job
        if not job.has_batch_script:
            return self._nothing("the job has no batch script: the owner of the allocation ends it")
        if self._restart_count is not None and job.restart_count != self._restart_count:
            return self._nothing("the job has been started anew")
        if not self._host_lost and _batch_host(client, job, time.monotonic() + TIMEOUT) is BatchHostState.MEMBER:
            return self._nothing("the batch host is in the job: its script ends the job")
        if job.heterogeneous:
            raise _LeftRunning("it is a heterogeneous job: to complete one of those was never tried")
        if self._plugin_dir is None:
            self._configure(client.configuration())
        library = libslurm.find(self._plugin_dir or "", os.environ)
        if library is None:
            raise _LeftRunning(f"there is no {libslurm.NAME} here")
        if waiting := self._obstacle(client, job, last):
            return waiting
        self._log("completing_job", job=job.job_id, exit_code=self._exit_code, nodes=job.nodes)
        self._called = True
        libslurm.complete(library, job.job_id, self._exit_code, os.environ)
        return self._over("ended")

    def _configure(self, configuration: dict[str, str]) -> None:
        self._plugin_dir = configuration.get("PluginDir", "")
        seconds = configuration["SlurmdTimeout"].split()[0]
        if seconds.isdecimal():
            self._slurmd_timeout = float(seconds)

    def _obstacle(self, client: SlurmClient, job: JobState, last: bool) -> str:
        """Return the reason why the job must not be ended yet; "" for none."""
        if job.state != "RUNNING" or job.flags & _NOT_NOW:
            return f"the job is {job.shown}"
        steps = client.running_steps(job)
        others = [step.name for step in steps if step.name.isdecimal() and int(step.name) != self._step_id]
        if others:
            return f"other steps of the job run: {', '.join(others)}"
        host = _living_host(job, steps)
        node = client.nodes([host]).get(host) if host else None
        if node is None or node.down:
            return ""
        # With SlurmdTimeout=0 slurmctld gives no node up, and one that was away has had less time to see it silent.
        if last and (_silent(node) or not self._slurmd_timeout or self._was_away):
            return ""
        return f"slurmctld lists the batch host {host} as {node.shown}: its script may live and end the job"

    def _over(self, state: str) -> CompletionResult:
        if self._called:
            self._log("job_completed", job=self._job_id, exit_code=self._exit_code)
            return CompletionResult.COMPLETED
        return self._nothing(f"the job is over: {state}")

    def _nothing(self, why: str) -> CompletionResult:
        self._log("nothing_to_complete", job=self._job_id, why=why)
        return CompletionResult.NOTHING

    def _waiting(self, why: str) -> None:
        if why != self._said:
            self._said = why
            self._log("waiting_to_complete_job", job=self._job_id, why=why, seconds_left=round(self._time_left()))

    def _left(self, error: SlurmError) -> CompletionResult:
        """Report that the job stays. Names scancel, as no other command gives a better state (measured: scancel gives
        CANCELLED; a time limit set to now, TIMEOUT)."""
        if self._job is None:
            what = f"job {self._job_id}, if it has a batch script, holds its nodes until its time limit"
        else:
            what = f"job {self._job_id} holds {self._job.nodes} until its time limit"
        self._log(
            "job_left_running",
            "error",
            job=self._job_id,
            left=what,
            why=str(error),
            ends_it=f"scancel {self._job_id}",
            verdict_code=self._exit_code,
        )
        return CompletionResult.LEFT


def _batch_host(client: SlurmClient, job: JobState, end: float) -> BatchHostState:
    host = _living_host(job, client.running_steps(job, timeout=remaining(end)))
    node = client.nodes([host], timeout=remaining(end)).get(host) if host else None
    if node is None or node.down:
        return BatchHostState.GONE
    return BatchHostState.SILENT if _silent(node) else BatchHostState.MEMBER


def _living_host(job: JobState, steps: Iterable[JobStep]) -> str:
    """Return the batch script's host; "" once slurmctld has taken it out of the job.

    Where the batch step is not listed any more, and slurmctld was started anew since, only the job's first node list,
    in our environment, still shows which host it was.
    """
    hosts = [step.nodes for step in steps if step.name == "batch"]
    if not hosts:
        at_first = os.environ.get("SLURM_JOB_NODELIST")
        hosts = [job.batch_host, *(expand(at_first)[:1] if at_first else ())]
    members = expand(job.nodes)
    return hosts[0] if all(host in members for host in hosts) else ""


def _silent(node: NodeState) -> bool:
    return "NOT_RESPONDING" in node.flags

"""The interface of LaunchMachine: its first data, the events that it handles, and the actions that it returns."""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.events import Signalled, Tick
from ft_supervisor.core.protocol.model import Outcome, Verdict


@dataclass(frozen=True)
class LaunchBegin:
    """The job, as far as the machine needs it. All times in seconds.

    `nodes` are the allocation's, `active` of them train. `host` is the node that runs the batch script; None under
    salloc on a login node. `comment`: whether the policy wants the job's end in its Comment. `graces`: what workers get
    to end by themselves after each outcome (model.last_grace). `srun_margin`: how long srun may take to end by itself
    beyond these graces, and again after SIGTERM.
    """

    job_id: int
    nodes: int
    active: int
    host: str | None
    comment: bool
    close_grace: float
    graces: tuple[tuple[Outcome, float], ...]
    srun_margin: float


# -- events


@dataclass(frozen=True)
class SrunStarted:
    """After StartSrun: srun runs."""


@dataclass(frozen=True)
class SrunMissing:
    """After StartSrun: this machine has no srun."""


@dataclass(frozen=True)
class SrunEnded:
    """srun has exited. `code` is the one that a shell reports: 128 + N after signal N."""

    code: int


@dataclass(frozen=True)
class VerdictRead:
    """After WatchForVerdict: the content of the verdict's file of the run that this srun has started."""

    verdict: Verdict
    run_id: str


@dataclass(frozen=True)
class OthersVerdict:
    """After WatchForVerdict: a whole verdict's file in the folder of `run_id`, with another launch's nonce."""

    verdict: Verdict
    run_id: str


@dataclass(frozen=True)
class BrokenFile:
    """After WatchForVerdict: a folder or a verdict's file that cannot be read, once for each problem."""

    problem: str


@dataclass(frozen=True)
class NotIndexed:
    """After NoteRun: the job is not in the user's index of runs."""

    problem: str


@dataclass(frozen=True)
class CommentWritten:
    """After WriteEndComment. `problem` is empty where the comment has the job's end, or cannot be changed any more."""

    problem: str = ""


@dataclass(frozen=True)
class RequeueForbidden:
    """After ForbidAnotherRun. `done`: Slurm would have run the job again, and does not any more. `problem`: why it is
    not known whether Slurm would; empty where it is known."""

    done: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Requeueing:
    """After RunJobAgain: this run of the job is Slurm's newest, and Slurm is asked now to run it again."""


@dataclass(frozen=True)
class Requeued:
    """After RunJobAgain. `problem` is empty where Slurm runs the job again, or is at a later run of it already."""

    problem: str = ""


@dataclass(frozen=True)
class HostAnswered:
    """After AskForHost. `gone`: Slurm has taken this node out of the job; False also where Slurm does not answer."""

    gone: bool


@dataclass(frozen=True)
class CompletingEnded:
    """After EndJob: Slurm has ended the job, or cannot."""


LaunchEvent = (
    Tick
    | Signalled
    | SrunStarted
    | SrunMissing
    | SrunEnded
    | VerdictRead
    | OthersVerdict
    | BrokenFile
    | NotIndexed
    | CommentWritten
    | RequeueForbidden
    | Requeueing
    | Requeued
    | HostAnswered
    | CompletingEnded
)


# -- actions


@dataclass(frozen=True)
class Say:
    """Write one line for people to stderr."""

    text: str


@dataclass(frozen=True)
class StartSrun:
    """Start srun with a daemon for each node. SrunStarted or SrunMissing follows before any other event."""


@dataclass(frozen=True)
class NoteRun:
    """Put the job into the user's index of runs. NotIndexed follows if that fails."""


@dataclass(frozen=True)
class WatchForVerdict:
    """Look for the verdict's file until this process ends, in the run's folder and in this node's own.

    VerdictRead follows at most once; BrokenFile and OthersVerdict once for each thing found.
    """


@dataclass(frozen=True)
class SignalSrun:
    """Send this signal to srun. SIGINT is passed on to the tasks (srun --disable-status); SIGTERM ends them all."""

    name: str


@dataclass(frozen=True)
class WriteEndComment:
    """Write the end of this run into the job's comment. CommentWritten follows, within a bound."""

    verdict: Verdict
    run_id: str


@dataclass(frozen=True)
class ForbidAnotherRun:
    """Have Slurm leave the job ended where it would run it again after this exit code. RequeueForbidden follows, within
    a bound."""

    code: int


@dataclass(frozen=True)
class RunJobAgain:
    """Have Slurm run the job again. Requeueing follows if that is still to be done, and then Requeued, within a bound,
    unless Slurm ends this process first."""


@dataclass(frozen=True)
class AskForHost:
    """Ask Slurm whether this node is in the job. HostAnswered follows, within a bound."""


@dataclass(frozen=True)
class EndJob:
    """End the job in Slurm with this exit code. `run_id` is empty where no verdict was read: then the end of the job's
    other steps is awaited. CompletingEnded follows, perhaps after minutes."""

    run_id: str
    code: int


@dataclass(frozen=True)
class GiveUpCompleting:
    """Stop EndJob: this process leaves before CompletingEnded, for the reason `why`."""

    why: str


LaunchAction = (
    Say
    | StartSrun
    | NoteRun
    | WatchForVerdict
    | SignalSrun
    | WriteEndComment
    | ForbidAnotherRun
    | RunJobAgain
    | AskForHost
    | EndJob
    | GiveUpCompleting
    | Leave
)

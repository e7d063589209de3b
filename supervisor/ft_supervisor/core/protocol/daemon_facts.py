"""The facts that a daemon announces, as data.

The log (process.log_lines makes a line of each fact), the journal, metrics, status and the history of a run are made of
facts. Nodes are infra_ranks, times are seconds, and nothing here has to be parsed: a `reason` is one line for people. A
new fact needs a line in process.log_lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.core.protocol.settings import OnFail


@dataclass(frozen=True)
class JobIntroduced:
    """The job's first fact, once for each job: `candidates` keep a coordinator, and any `losses` nodes may die at the
    same moment."""

    candidates: tuple[int, ...]
    losses: int


@dataclass(frozen=True)
class CheckChanged:
    """A health check has another result. `effect`: what it does to the node now; None when it passes again."""

    check: str
    effect: OnFail | None
    reason: str


@dataclass(frozen=True)
class AgentLost:
    """The agent ended before its work was done. `crashes`: how many ended soon after their start, in a row."""

    status: str
    incarnation: int
    crashes: int


@dataclass(frozen=True)
class AgentSilent:
    """The daemon kills its agent, which was silent for `seconds` or has missed its fence."""

    seconds: float
    incarnation: int


@dataclass(frozen=True)
class CoordinatorListens:
    """This node's coordinator has opened its store on `port`."""

    port: int


@dataclass(frozen=True)
class CoordinatorLost:
    """This node's coordinator ended before its work was done."""

    status: str
    crashes: int


@dataclass(frozen=True)
class CoordinatorSilent:
    """The daemon kills its coordinator, which was silent for too long."""


@dataclass(frozen=True)
class DaemonSignalled:
    """The daemon got this signal, for example "SIGTERM"."""

    name: str


@dataclass(frozen=True)
class VerdictFound:
    """A node without a coordinator has found the run's verdict file."""

    verdict: Verdict


@dataclass(frozen=True)
class LastLookHangs:
    """A daemon that started late has waited for the run's verdict file for `seconds` without an answer."""

    seconds: float


@dataclass(frozen=True)
class DaemonLeaves:
    """The daemon ends: no child is left, and the node's files are written. `verdict` None: it is not known here."""

    code: int
    verdict: Verdict | None
    reason: str


@dataclass(frozen=True)
class DeputyStandsIn:
    """This node ends the job in Slurm instead of the node that closed it, after `seconds` for other nodes' last grace.
    `host` runs the batch script."""

    job_id: int
    host: str
    seconds: float


@dataclass(frozen=True)
class BatchHostUnknown:
    """Slurm has not answered whether the batch script's node is in the job; `why` describes the problem."""

    job_id: int
    host: str
    why: str


DaemonFact = (
    JobIntroduced
    | CheckChanged
    | AgentLost
    | AgentSilent
    | CoordinatorListens
    | CoordinatorLost
    | CoordinatorSilent
    | DaemonSignalled
    | VerdictFound
    | LastLookHangs
    | DaemonLeaves
    | DeputyStandsIn
    | BatchHostUnknown
)

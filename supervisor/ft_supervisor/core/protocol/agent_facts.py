"""The facts that an agent announces, as data.

The log (process.log_lines makes a line of each fact), the journal, metrics, status and the history of a run are made of
facts. Nodes are infra_ranks, times are seconds, and nothing here has to be parsed: a `reason` is one line for people. A
new fact needs a line in process.log_lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.protocol.model import Cycle, Failure, Problem
from ft_supervisor.core.protocol.orders import AgentState


@dataclass(frozen=True)
class CoordinatorFound:
    """The agent has a connection to this candidate's store."""

    candidate: int


@dataclass(frozen=True)
class ConnectionLost:
    """The agent's connection is gone; it tries the candidates in turn."""

    reason: str


@dataclass(frozen=True)
class TermPromised:
    """This node obeys no coordinator of a lower term from now on."""

    term: int


@dataclass(frozen=True)
class MailDropped:
    """The agent did not act on a coordinator's message. `message`: its type. `reason` None: it is of another term.
    `more`: how many alike were dropped since the last line."""

    message: str
    term: int
    reason: str | None
    more: int = 0


@dataclass(frozen=True)
class RunRefused:
    """The agent did not start this cycle: it has no lease to run it."""

    cycle: Cycle


@dataclass(frozen=True)
class RunDropped:
    """The agent did not start this cycle, as workers of `running` are not gone. `more`: as in MailDropped."""

    cycle: Cycle
    running: Cycle
    more: int = 0


@dataclass(frozen=True)
class AgentUnhealthy:
    """This agent's node is not to be chosen any more."""

    problem: Problem


@dataclass(frozen=True)
class FailureIgnored:
    """A worker failed, and by a rule the others go on."""

    failure: Failure


@dataclass(frozen=True)
class WorkerFailed:
    """One worker of this node failed in `cycle`, which ends the cycle."""

    cycle: Cycle
    failure: Failure


@dataclass(frozen=True)
class WorkerHangs:
    """One worker of this node has sent no heartbeat in time. Its stacks are taken next."""

    cycle: Cycle
    failure: Failure


@dataclass(frozen=True)
class TerminationPassedOn:
    """The agent reports to the coordinator that a signal asks this node to end."""

    reason: str


@dataclass(frozen=True)
class ConfigDiffers:
    """The coordinator that was found has another configuration than this node."""

    reason: str


@dataclass(frozen=True)
class Fenced:
    """The lease ended `seconds` after it was renewed last: the agent kills its workers."""

    seconds: float


@dataclass(frozen=True)
class AgentBecame:
    """The agent is now on standby, checking, stopping or succeeded; other states have facts of their own. `cycle`: the
    one that it checks for, stops, or has finished."""

    state: AgentState
    cycle: Cycle | None = None


@dataclass(frozen=True)
class AgentActive:
    """The agent starts the workers of `cycle`: this node has `group_rank` among `group_world_size` nodes."""

    cycle: Cycle
    group_rank: int
    group_world_size: int


@dataclass(frozen=True)
class WorkersMade:
    """How many workers of `cycle` on this node go on in the processes in which they were parked (`in_process`), are
    processes that were started ahead (`warm`), and were started now (`cold`)."""

    cycle: Cycle
    in_process: int
    warm: int
    cold: int


@dataclass(frozen=True)
class AgentClosing:
    """The agent ends its workers, if there are any, and leaves."""

    reason: str


AgentFact = (
    CoordinatorFound
    | ConnectionLost
    | TermPromised
    | MailDropped
    | RunRefused
    | RunDropped
    | AgentUnhealthy
    | FailureIgnored
    | WorkerFailed
    | WorkerHangs
    | TerminationPassedOn
    | ConfigDiffers
    | Fenced
    | AgentBecame
    | AgentActive
    | WorkersMade
    | AgentClosing
)

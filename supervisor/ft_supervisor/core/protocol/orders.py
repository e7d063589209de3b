"""The messages between a daemon and its children, over their socket pair: one JSON object in each line."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ft_supervisor.core.protocol.bounds import AnyTerm, Count, ExitCode, Name, Port, Rank
from ft_supervisor.core.protocol.model import Job, Memory, Node, Problem, Verdict
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.summary import Summary


@dataclass(frozen=True)
class Begin:
    """Daemon to a new child: its identity, and its node's memory. `incarnation` counts agents and coordinators apart.

    `epoch`: the offset from this node's monotonic clock to seconds since the epoch. `waited`: for how many seconds the
    node has been looking for its first coordinator; 0 once it has had one.
    """

    job: Job
    node: Node
    incarnation: Count
    memory: Memory
    epoch: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True)
class Terminate:
    """Daemon to agent: a signal asks the node to end; `reason` names it."""

    reason: str


class AgentState(StrEnum):
    """The states of an agent, on which its daemon decides."""

    JOINING = "joining"
    STANDBY = "standby"
    CHECKING = "checking"
    ACTIVE = "active"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    CLOSING = "closing"


@dataclass(frozen=True)
class Alive:
    """Child to daemon, each heartbeat and from its main loop, so that a hung child is a silent one.

    `state`: an agent's state; or a coordinator's phase, for people alone. `fence_in`: seconds until the agent will end
    its workers for want of a lease; if it is frozen then, its daemon ends them. `look`: the job may be over, so that
    without a coordinator the verdict's file is worth a look.
    """

    state: AgentState | Name
    cycle: Name = ""
    group_rank: Rank | None = None
    fence_in: float | None = None
    look: bool = False


@dataclass(frozen=True)
class Reached:
    """Agent to daemon: it is connected to the coordinator's store at this address."""

    host: Name
    port: Port


@dataclass(frozen=True)
class Remember:
    """Agent to daemon: keep this memory for the agent's successors."""

    memory: Memory


@dataclass(frozen=True)
class Promise:
    """Daemon to coordinator: the term that its node has promised, perhaps to another coordinator."""

    term: AnyTerm


@dataclass(frozen=True)
class Done:
    """Child to daemon: the child's last message; it has left nothing running. `code`: the daemon's exit code."""

    code: ExitCode
    verdict: Verdict | None
    reason: str


@dataclass(frozen=True)
class Listening:
    """Coordinator to daemon: the store listens here."""

    port: Port


@dataclass(frozen=True)
class VerdictDecided:
    """Coordinator to daemon: the job's verdict. If the coordinator dies now, the daemon writes the verdict's file.

    `lost`: the nodes that are gone and have sent no Goodbye; infra_ranks as `ranks.format_ranks` writes them. `summary`
    does not count when two of these are compared.
    """

    verdict: Verdict
    lost: str = ""
    summary: Summary = field(default=Summary(), compare=False)

    def __post_init__(self) -> None:
        parse_ranks(self.lost)  # ValueError


@dataclass(frozen=True)
class Check:
    """Agent to daemon: may this node run `cycle`? Checked is the answer."""

    cycle: Name


@dataclass(frozen=True)
class Checked:
    """Daemon to agent: `problem` keeps this node from running `cycle`; None: it may run."""

    cycle: Name
    problem: Problem | None


@dataclass(frozen=True)
class Sick:
    """Daemon to agent: a health check has failed, and this node is not to be chosen again."""

    problem: Problem


@dataclass(frozen=True)
class AskSlurm:
    """Coordinator to daemon: ask Slurm about the job and its nodes. SlurmSaid is the answer.

    `urgent`: ask about the job alone, and soon.
    """

    urgent: bool = False


class SlurmDecision(StrEnum):
    """Slurm's decision about the job: to let it run, or the way in which it ends."""

    NOTHING = "nothing"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"


@dataclass(frozen=True)
class SlurmSaid:
    """Daemon to coordinator: Slurm's answer. `end_in`: seconds until Slurm ends the job, `limit`: for how many it may
    run in all; None where that is not known. `draining`: infra_ranks of draining nodes, None if Slurm was not asked
    about them. `problem`: why there is no answer."""

    word: SlurmDecision = SlurmDecision.NOTHING
    end_in: float | None = None
    limit: float | None = None
    draining: tuple[Rank, ...] | None = None
    problem: str = ""


ORDERS: tuple[type, ...] = (
    Begin,
    Terminate,
    Alive,
    Reached,
    Remember,
    Promise,
    Done,
    Listening,
    VerdictDecided,
    Check,
    Checked,
    Sick,
    AskSlurm,
    SlurmSaid,
)
Order = (
    Begin
    | Terminate
    | Alive
    | Reached
    | Remember
    | Promise
    | Done
    | Listening
    | VerdictDecided
    | Check
    | Checked
    | Sick
    | AskSlurm
    | SlurmSaid
)

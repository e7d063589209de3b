"""What agents and coordinators say to one another through the store (design sections 6 and 7).

Every message carries a term: a coordinator's its own, an agent's the one that its node has promised. A receiver drops
what is of an older term, cycle, incarnation or connection than it knows. Mail travels in a queue for one connection
of one incarnation, so whatever comes out of it was said after the Register of that connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.ledger import Ledger
from ft_supervisor.core.model import Cycle, Failure, Memory, Node, Problem, Roster, Verdict
from ft_supervisor.core.ranks import unfold


@dataclass(frozen=True)
class Register:
    """A node and its whole truth, so that no old mail need ever be sent again; also the answer to Prepare.

    `connection` counts this incarnation's connections. `round`: the store's, as read on this connection.
    `running`: the cycle whose workers may live on this node. `port`: free on this node just now, for the workers'
    own store, should this node get group_rank 0. The term is `memory.promise`. `serial` counts this incarnation's
    Registers: an old one that comes once more is none. `told`: the signal that told this node to end, as in Leaving.
    """

    node: Node
    incarnation: int
    connection: int
    round: int
    port: int
    running: Cycle | None
    memory: Memory
    serial: int = 1
    told: str = ""

    @property
    def infra_rank(self) -> int:
        """Whose message this is."""
        return self.node.infra_rank

    @property
    def term(self) -> int:
        """What the node has promised."""
        return self.memory.promise


@dataclass(frozen=True)
class WorkersFailed:
    """Workers of `cycle` failed on this node; the agent is stopping the others."""

    term: int
    infra_rank: int
    incarnation: int
    cycle: Cycle
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class WorkersSucceeded:
    """All workers of `cycle` on this node have exited with 0, and nothing of them is left."""

    term: int
    infra_rank: int
    incarnation: int
    cycle: Cycle


@dataclass(frozen=True)
class Stopping:
    """The Stop was heard: the answer to the probe that every Stop is."""

    term: int
    infra_rank: int
    incarnation: int
    cycle: Cycle


@dataclass(frozen=True)
class WorkersStopped:
    """No worker of `cycle` or an older one is left on this node, nor any process that they started."""

    term: int
    infra_rank: int
    incarnation: int
    cycle: Cycle
    port: int


@dataclass(frozen=True)
class RosterKept:
    """This node's daemon keeps the roster with this stamp."""

    term: int
    infra_rank: int
    incarnation: int
    stamp: tuple[int, int]


@dataclass(frozen=True)
class VerdictKept:
    """This node's daemon keeps the verdict that was proposed in this term."""

    term: int
    infra_rank: int
    incarnation: int


@dataclass(frozen=True)
class Unhealthy:
    """A check has failed: this node is not to be chosen again."""

    term: int
    infra_rank: int
    incarnation: int
    problem: Problem


@dataclass(frozen=True)
class Leaving:
    """This node was told to end by a signal: somebody cancels the job, or Slurm ends it."""

    term: int
    infra_rank: int
    incarnation: int
    reason: str


@dataclass(frozen=True)
class Goodbye:
    """The last message of a node that ends, with the job's verdict if it knows that."""

    term: int
    infra_rank: int
    incarnation: int
    verdict: Verdict | None


@dataclass(frozen=True)
class Prepare:
    """Promise this term: refuse all lower ones from now on. The answer is a new Register."""

    term: int


@dataclass(frozen=True)
class Members:
    """Keep this roster; the answer is RosterKept."""

    term: int
    roster: Roster


@dataclass(frozen=True)
class Standby:
    """Wait. `cycle` is the one that runs now, whose exit barrier the standby watches. Implies stop what runs.

    `age`: seconds since the coordinator's last proof that it has a majority; None without one.
    """

    term: int
    cycle: Cycle | None
    ledger: Ledger
    age: float | None


@dataclass(frozen=True)
class Run:
    """Run workers as `group_rank` of `group_world_size` nodes. Implies stop what runs.

    `group`: infra_ranks by group_rank, folded. `ledger`: what the budgets have been used for. `age` as in Standby.
    """

    term: int
    cycle: Cycle
    group: str
    group_rank: int
    group_world_size: int
    restart_count: int
    max_restarts: int
    master_addr: str
    master_port: int
    ledger: Ledger
    age: float

    def __post_init__(self) -> None:
        unfold(self.group)  # ValueError


@dataclass(frozen=True)
class Continue:
    """A new coordinator, or a new connection to the old one: the workers of `cycle` simply go on. `age` as above."""

    term: int
    cycle: Cycle
    ledger: Ledger
    age: float | None


@dataclass(frozen=True)
class Stop:
    """Stop the workers of `cycle`, with SIGKILL after `grace` seconds, and answer: a new cycle waits for it. `group` as
    in Run, which may have been lost."""

    term: int
    cycle: Cycle
    group: str
    grace: float

    def __post_init__(self) -> None:
        unfold(self.group)  # ValueError


@dataclass(frozen=True)
class Propose:
    """Keep this verdict, which becomes the job's once a majority does; the answer is VerdictKept."""

    term: int
    verdict: Verdict


@dataclass(frozen=True)
class Close:
    """The job is over."""

    term: int
    verdict: Verdict


ToCoordinator = (
    Register
    | WorkersFailed
    | WorkersSucceeded
    | Stopping
    | WorkersStopped
    | RosterKept
    | VerdictKept
    | Unhealthy
    | Leaving
    | Goodbye
)
ToAgent = Prepare | Members | Standby | Run | Continue | Stop | Propose | Close

TO_COORDINATOR: tuple[type, ...] = (
    Register,
    WorkersFailed,
    WorkersSucceeded,
    Stopping,
    WorkersStopped,
    RosterKept,
    VerdictKept,
    Unhealthy,
    Leaving,
    Goodbye,
)
TO_AGENT: tuple[type, ...] = (Prepare, Members, Standby, Run, Continue, Stop, Propose, Close)

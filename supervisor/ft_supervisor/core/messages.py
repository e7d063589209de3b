"""What agents and the coordinator say to one another through the store (design section 6).

Every message carries the term of the coordinator it is from or for; those of agents also say whose they are. A
receiver drops what is older than what it knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.model import Cycle, Failure, Memory, Node, Verdict


@dataclass(frozen=True)
class Register:
    """A node and its whole truth, so that no old mail need ever be sent again.

    `connection` counts this incarnation's connections, and each Run echoes the newest one that the coordinator knows.
    `running`: the cycle whose workers may live on this node. `port`: free on this node just now, for the workers'
    own store, should this node get group_rank 0.
    """

    term: int
    node: Node
    incarnation: int
    connection: int
    port: int
    running: Cycle | None
    memory: Memory

    @property
    def infra_rank(self) -> int:
        """Whose message this is."""
        return self.node.infra_rank


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
class Leaving:
    """This node was told to end by a signal: somebody cancels the job."""

    term: int
    infra_rank: int
    incarnation: int
    reason: str


@dataclass(frozen=True)
class Goodbye:
    """The last message of a node that ends."""

    term: int
    infra_rank: int
    incarnation: int


@dataclass(frozen=True)
class Standby:
    """Wait. `cycle` is the one that runs now, whose exit barrier the standby watches. Implies stop what runs."""

    term: int
    cycle: Cycle | None


@dataclass(frozen=True)
class Run:
    """Run workers as `group_rank` of `group_world_size` nodes. Implies stop what runs.

    `connection` is the receiver's, as its last Register had it: a Run that is older than what the node has told
    since may stem from a world that has given the node up, and is dropped.
    """

    term: int
    connection: int
    cycle: Cycle
    group_rank: int
    group_world_size: int
    restart_count: int
    max_restarts: int
    master_addr: str
    master_port: int


@dataclass(frozen=True)
class Stop:
    """Stop the workers of `cycle` and answer: a new cycle waits for it."""

    term: int
    cycle: Cycle


@dataclass(frozen=True)
class Close:
    """The job is over."""

    term: int
    verdict: Verdict


ToCoordinator = Register | WorkersFailed | WorkersSucceeded | Stopping | WorkersStopped | Leaving | Goodbye
ToAgent = Standby | Run | Stop | Close

TO_COORDINATOR: tuple[type, ...] = (
    Register,
    WorkersFailed,
    WorkersSucceeded,
    Stopping,
    WorkersStopped,
    Leaving,
    Goodbye,
)
TO_AGENT: tuple[type, ...] = (Standby, Run, Stop, Close)

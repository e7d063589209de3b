"""The messages between agents and coordinators, which go through the store (docs/internals/design.md).

Every message carries a term: a coordinator's its own, an agent's the one that its node has promised. A receiver drops
messages of an older term, cycle, incarnation or connection than it has seen. Mail travels in a queue for one connection
of one incarnation, so every message in it was sent after the Register of that connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ft_supervisor.core.protocol.bounds import (
    AnyTerm,
    Count,
    Duration,
    LocalRank,
    Name,
    Ordinal,
    Port,
    Rank,
    Term,
    Text,
)
from ft_supervisor.core.protocol.evidence import Digest
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.model import Cycle, Failure, Memory, Node, Problem, Roster, Verdict
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.signs import NodeSign


@dataclass(frozen=True)
class Register:
    """A node with its whole state, so that no old mail has to be sent again; also the answer to Prepare.

    `connection` counts this incarnation's connections. `round`: the store's, as read on this connection.
    `running`: the cycle whose workers may live on this node. `port`: free on this node just now, for the workers'
    own store, should this node get group_rank 0. The term is `memory.promise`. `serial` counts this incarnation's
    Registers: a repeated old one is ignored. `told`: the signal that asks this node to end, as in ToldToEnd.
    `completed`: the functions of WorkersCompleted for the cycle that runs; 0 if there was none. `hangs`: the first
    failure of the last HangNoticed, while its workers run. `sign`: that of Training for the cycle that runs.
    """

    node: Node
    incarnation: Ordinal
    connection: Ordinal
    round: Count
    port: Port
    running: Cycle | None
    memory: Memory
    serial: Ordinal = 1
    told: Text = ""
    completed: Count = 0
    hangs: tuple[Failure, ...] = ()
    sign: NodeSign | None = None

    @property
    def infra_rank(self) -> int:
        """The infra_rank of the sender."""
        return self.node.infra_rank

    @property
    def term(self) -> int:
        """The term that the node has promised."""
        return self.memory.promise


@dataclass(frozen=True)
class WorkersFailed:
    """Workers of `cycle` failed on this node; the agent is stopping the others."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class HangNoticed:
    """Workers of `cycle` hang on this node. They run on: evidence of all workers of the cycle is wanted first. If the
    coordinator asks for none the agent reports WorkersFailed after a while."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class Evidence:
    """The answer to TakeEvidence with this `number`: a digest of each worker of `cycle` that lives on this node.

    By local_rank: `rules`, Failure.rules; `last_lines`, the end of Failure.last_lines; `silent`, seconds since the last
    heartbeat of each worker that sends any.
    """

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle
    number: Ordinal
    digests: tuple[Digest, ...]
    rules: tuple[tuple[LocalRank, tuple[Rank, ...]], ...] = ()
    last_lines: tuple[tuple[LocalRank, Text], ...] = ()
    silent: tuple[tuple[LocalRank, Duration], ...] = ()


@dataclass(frozen=True)
class StandsStill:
    """All workers of `cycle` on this node have done nothing for so many seconds, as far as that can be seen from
    outside; 0: one of them works again. It is sent again and again while that is so."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle
    seconds: Duration


@dataclass(frozen=True)
class WorkersSucceeded:
    """All workers of `cycle` on this node have exited with 0, and nothing of them is left."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle


@dataclass(frozen=True)
class WorkersCompleted:
    """Each worker of `cycle` on this node that has not exited with 0 has returned from `functions` of its restartable
    functions, and waits in the last one for those of all other nodes."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle
    functions: Ordinal


@dataclass(frozen=True)
class Training:
    """The workers of `cycle` on this node have given their first sign of training, or a better one."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle
    sign: NodeSign


@dataclass(frozen=True)
class AtStep:
    """Workers of `cycle` on this node have named this training step. The node of rank 0 sends it now and then."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle
    step: Count


@dataclass(frozen=True)
class Stopping:
    """This node has received a Stop, and its agent answers. A node that does not within
    `timeouts.probe` is suspected to hang. WorkersStopped follows when the workers have ended."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle


@dataclass(frozen=True)
class WorkersStopped:
    """No worker of `cycle` or an older one runs on this node, nor any process that they started. `parked`: so many of
    its workers wait in their processes for the next Run. `progressed`: some worker of `cycle` has made progress here.
    """

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle
    port: Port
    parked: Count = 0
    progressed: bool = False


@dataclass(frozen=True)
class AgentGone:
    """From the node's daemon: the agent of this incarnation has ended, and so has everything that it had started. Its
    next agent will register. The daemon repeats this with each heartbeat until that agent is there.

    `cycle`: the newest that the node knows. `succeeded`, `progressed`: whether its workers have done so in that cycle.
    `failures`: at most the first one in that cycle, which may be the agent's own.
    """

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    cycle: Cycle | None
    failures: tuple[Failure, ...] = ()
    succeeded: bool = False
    progressed: bool = False


@dataclass(frozen=True)
class RosterKept:
    """This node's daemon keeps the roster with this stamp."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    stamp: tuple[AnyTerm, Count]


@dataclass(frozen=True)
class VerdictKept:
    """This node's daemon keeps the verdict that was proposed in this term."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal


@dataclass(frozen=True)
class Unhealthy:
    """A check has failed: this node is not to be chosen again."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    problem: Problem


@dataclass(frozen=True)
class ToldToEnd:
    """A signal asks this node to end: a person cancels the job, or Slurm ends it."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    reason: Text


@dataclass(frozen=True)
class Goodbye:
    """The last message of a node that ends, with the job's verdict if the node has it."""

    term: Term
    infra_rank: Rank
    incarnation: Ordinal
    verdict: Verdict | None


@dataclass(frozen=True)
class Prepare:
    """Promise this term: refuse all lower ones from now on. The answer is a new Register."""

    term: Term


@dataclass(frozen=True)
class Members:
    """Keep this roster; the answer is RosterKept."""

    term: Term
    roster: Roster


@dataclass(frozen=True)
class Standby:
    """Wait. `cycle` runs now, and the standby watches its exit barrier. Implies: stop workers that run.

    `age`: seconds since the coordinator's last proof that it has a majority; None without one.
    """

    term: Term
    cycle: Cycle | None
    ledger: Ledger
    age: Duration | None


@dataclass(frozen=True)
class Run:
    """Run workers as `group_rank` of `group_world_size` nodes. Implies: stop workers that run.

    `group`: infra_ranks by group_rank, as `ranks.format_ranks` writes them. `age` as in Standby. `fresh`: all workers
    are new processes; workers that are parked are killed first.
    """

    term: Term
    cycle: Cycle
    group: str
    group_rank: Rank
    group_world_size: Ordinal
    restart_count: Count
    max_restarts: Count
    master_addr: Name
    master_port: Port
    ledger: Ledger
    age: Duration
    fresh: bool = True

    def __post_init__(self) -> None:
        if not self.group_rank < len(parse_ranks(self.group)) == self.group_world_size:  # ValueError
            raise ValueError(f"rank {self.group_rank} of {self.group_world_size} nodes does not fit the group")
        if self.max_restarts < self.restart_count:
            raise ValueError(f"restart {self.restart_count} of {self.max_restarts}")


@dataclass(frozen=True)
class Continue:
    """The workers of `cycle` go on under a new coordinator, or on a new connection to the old. `age`: see Standby."""

    term: Term
    cycle: Cycle
    ledger: Ledger
    age: Duration | None


@dataclass(frozen=True)
class Stop:
    """Stop the workers of `cycle`, with SIGKILL after `grace` seconds, and answer: a new cycle waits for it. `group`:
    as in Run; it is repeated here because the Run may have been lost."""

    term: Term
    cycle: Cycle
    group: str
    grace: Duration

    def __post_init__(self) -> None:
        parse_ranks(self.group)  # ValueError


@dataclass(frozen=True)
class TakeEvidence:
    """Tell what the workers of `cycle` do, which may hang; the answer is Evidence with this `number`. Nothing is
    stopped. The numbers of one term count up. `gently`: the workers go on, whatever is found, so they get no signal."""

    term: Term
    cycle: Cycle
    number: Ordinal
    gently: bool = False


@dataclass(frozen=True)
class Complete:
    """All workers of `cycle` have returned from so many restartable functions: those that wait may go on."""

    term: Term
    cycle: Cycle
    functions: Ordinal


@dataclass(frozen=True)
class Propose:
    """Keep this verdict, which becomes the job's once a majority does; the answer is VerdictKept.

    `deputy`: see model.Accepted. It goes with the proposal, because a node may learn of the end from the store's key.
    """

    term: Term
    verdict: Verdict
    deputy: bool = False


@dataclass(frozen=True)
class Close:
    """The job is over."""

    term: Term
    verdict: Verdict


OfWorkers = (
    WorkersFailed
    | HangNoticed
    | Evidence
    | StandsStill
    | WorkersSucceeded
    | WorkersCompleted
    | Training
    | AtStep
    | Stopping
    | WorkersStopped
    | AgentGone
)
"""Messages about the state of a node's workers."""
OF_WORKERS: tuple[type, ...] = get_args(OfWorkers)

ToCoordinator = Register | OfWorkers | RosterKept | VerdictKept | Unhealthy | ToldToEnd | Goodbye
ToAgent = Prepare | Members | Standby | Run | Continue | Stop | TakeEvidence | Complete | Propose | Close

TO_COORDINATOR: tuple[type, ...] = get_args(ToCoordinator)
TO_AGENT: tuple[type, ...] = get_args(ToAgent)

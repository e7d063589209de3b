"""The events that the three machines handle, in one group for each machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ft_supervisor.core.protocol.activity import Activity
from ft_supervisor.core.protocol.checkpoint import CheckpointSeen
from ft_supervisor.core.protocol.evidence import Digest
from ft_supervisor.core.protocol.health_types import CheckOutcome
from ft_supervisor.core.protocol.messages import ToAgent, ToCoordinator
from ft_supervisor.core.protocol.model import Cycle, Failure, Problem, Verdict
from ft_supervisor.core.protocol.orders import Order, SlurmSaid


@dataclass(frozen=True)
class Tick:
    """Time has passed; each machine gets a Tick every heartbeat."""


# -- the coordinator's


@dataclass(frozen=True)
class Received:
    """A message was read from the inbox."""

    message: ToCoordinator


@dataclass(frozen=True)
class Heard:
    """The heartbeats of these nodes have changed since the last look: (infra_rank, the round that it has read)."""

    echoes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Promised:
    """Our own node has promised this term, perhaps to another coordinator."""

    term: int


@dataclass(frozen=True)
class VerdictWritten:
    """After WriteVerdict: the run's verdict file holds this verdict, which may be another one, or cannot be written."""

    verdict: Verdict


@dataclass(frozen=True)
class StepRead:
    """After ReadStep: the step of the job's newest checkpoint; None if no file with a number in it exists. `age`: how
    many seconds before this event the file was written; None without a step, or if that is not known."""

    step: int | None
    age: float | None = None


@dataclass(frozen=True)
class SlurmToldUs:
    """After Tell(AskSlurm): Slurm's answer; see orders.SlurmSaid."""

    said: SlurmSaid


# -- the agent's


@dataclass(frozen=True)
class Connected:
    """The store of this candidate answers on our `connection`, the highest number so far.

    `round`: the store's, asked for at `asked` (seconds of the caller's monotonic clock) on this connection. `port` is
    free on this node just now.
    """

    candidate: int
    connection: int
    round: int
    asked: float
    port: int


@dataclass(frozen=True)
class Disconnected:
    """The connection broke, or (`silent`) its other end does not answer. A Dial must follow."""

    reason: str
    silent: bool


@dataclass(frozen=True)
class Mailed:
    """A message was read from our mail."""

    message: ToAgent


@dataclass(frozen=True)
class Looked:
    """The store's pulse, asked for at `asked` (seconds of the caller's monotonic clock): its coordinator's `round`; the
    `term` in which that is in charge, or the term of another coordinator that it follows (None: no term); and in
    `lease` the newest round that a majority has read."""

    asked: float
    round: int
    term: int | None
    lease: int


@dataclass(frozen=True)
class BarrierPassed:
    """By the store's key all active nodes of `cycle` have entered its exit barrier. Anyone on the network may have set
    that key."""

    cycle: Cycle


@dataclass(frozen=True)
class WorkersStarted:
    """After Start: how many workers of `cycle` go on in the processes in which they were parked (`in_process`), are
    processes that were started ahead (`warm`), and were started now (`cold`)."""

    cycle: Cycle
    in_process: int
    warm: int
    cold: int


@dataclass(frozen=True)
class WorkerProgressed:
    """A worker of `cycle` has made its first progress."""

    cycle: Cycle


@dataclass(frozen=True)
class FirstLine:
    """Rank 0 of `cycle`, which is on this node, has printed something for the first time in it."""

    cycle: Cycle


@dataclass(frozen=True)
class WorkersReturned:
    """Each worker of `cycle` that has not exited with 0 has returned from `functions` restartable functions, and waits
    for ReleaseWorkers."""

    cycle: Cycle
    functions: int


@dataclass(frozen=True)
class WorkersExited:
    """Workers of `cycle` have exited: some failed, or (no failures) the last one has succeeded. The process of a
    failed one may live."""

    cycle: Cycle
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class CannotStart:
    """After Start: this node was not able to start the workers of `cycle`, through no fault of theirs; `reason` is the
    system's. Some of them may run, until a StopWorkers."""

    cycle: Cycle
    reason: str


@dataclass(frozen=True)
class WorkersGone:
    """After Start or StopWorkers: each worker of `cycle` has ended, with all its processes, or is parked. `parked`: the
    local ranks of those. `port` is free just now."""

    cycle: Cycle
    port: int
    parked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Beat:
    """A worker's notification by systemd's notify protocol. `kind`: of all since the last look the first of trigger (it
    reports itself as hung), stopping, ready and beat. `after`: seconds of silence after which it hangs, if it has
    sent that; 0: never. `step`: the training step that it has named, None if it has not."""

    local_rank: int
    kind: str
    after: float | None = None
    step: int | None = None


@dataclass(frozen=True)
class WorkersSeen:
    """After LookAtWorkers. `activities`: of the workers that live. `stacks`: (local_rank, hash of the main thread's
    stack) of those whose stack is known."""

    cycle: Cycle
    activities: tuple[Activity, ...]
    stacks: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class EvidenceTaken:
    """After GatherEvidence with this `number`, or its bound: see messages.Evidence."""

    cycle: Cycle
    number: int
    digests: tuple[Digest, ...] = ()
    rules: tuple[tuple[int, tuple[int, ...]], ...] = ()
    last_lines: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class CheckAnswered:
    """After Tell(Check): `problem` keeps this node from running `cycle`; None: it may run."""

    cycle: str
    problem: Problem | None


@dataclass(frozen=True)
class TurnedUnhealthy:
    """A health check of the daemon's has failed."""

    problem: Problem


@dataclass(frozen=True)
class PolicyDiffers:
    """A store that answers as a candidate's has another configuration; `reason` names the first difference. The search
    for one with ours goes on. `certain`: the job's own address file names that store; else anyone on that host may have
    made it."""

    reason: str
    certain: bool = True


@dataclass(frozen=True)
class Terminated:
    """A signal to the daemon asks the node to end; `reason` names it."""

    reason: str


# -- of all machines


@dataclass(frozen=True)
class CloseHeld:
    """The store's `permanent_close` holds this verdict; after ClaimClose, or because another process has set it."""

    verdict: Verdict


@dataclass(frozen=True)
class VerdictFileFound:
    """After LookForVerdict: the run's verdict file holds this verdict."""

    verdict: Verdict


# -- the daemon's


@dataclass(frozen=True)
class ChildExited:
    """`child` ("agent" or "coordinator") has ended, and everything below it. `status` tells people how."""

    child: str
    status: str


@dataclass(frozen=True)
class Ordered:
    """A child has sent an order over its link."""

    child: str
    order: Order


@dataclass(frozen=True)
class Signalled:
    """The process got a signal; `name` is for example "SIGTERM"."""

    name: str


@dataclass(frozen=True)
class ChecksDone:
    """After RunChecks: the results of the round's checks."""

    number: int
    outcomes: tuple[CheckOutcome, ...]


@dataclass(frozen=True)
class SlurmAnswered:
    """After CallSlurm: Slurm's answer."""

    said: SlurmSaid


@dataclass(frozen=True)
class InBatchJob:
    """The daemon's step is part of this Slurm job. Without this event there is no Slurm. `host`: the name of the node
    on which Slurm has started the batch script, if the job has one."""

    job_id: int
    host: str


@dataclass(frozen=True)
class NoVerdict:
    """After LookForVerdict: the run's verdict file is not there, or cannot be read."""


class BatchHost(StrEnum):
    """What slurmctld says of the node that runs the batch script; see ft_slurm.completion.BatchHostState."""

    MEMBER = "member"
    SILENT = "silent"
    GONE = "gone"
    NONE = "none"


@dataclass(frozen=True)
class BatchHostAnswered:
    """After AskBatchHost. `host` None: Slurm does not answer, and `why` describes the problem."""

    host: BatchHost | None
    why: str = ""


class Deed(StrEnum):
    """A request that a daemon can make to Slurm at the job's end."""

    COMMENT = "comment"
    FORBID_REQUEUE = "forbid_requeue"
    REQUEUE = "requeue"
    COMPLETE = "complete"


@dataclass(frozen=True)
class DeedDone:
    """After WriteComment, ForbidRequeue, RequeueJob or CompleteJob: the request has come to its end. `done`: its aim is
    reached, also if Slurm requeues the job by itself."""

    deed: Deed
    done: bool = True


CoordinatorEvent = (
    Tick
    | Received
    | Heard
    | Promised
    | VerdictWritten
    | StepRead
    | CheckpointSeen
    | SlurmToldUs
    | CloseHeld
    | VerdictFileFound
)
AgentEvent = (
    Tick
    | Connected
    | Disconnected
    | Mailed
    | Looked
    | BarrierPassed
    | WorkersStarted
    | WorkerProgressed
    | FirstLine
    | WorkersReturned
    | WorkersExited
    | CannotStart
    | WorkersGone
    | Beat
    | WorkersSeen
    | EvidenceTaken
    | CheckAnswered
    | TurnedUnhealthy
    | PolicyDiffers
    | Terminated
    | CloseHeld
)
DaemonEvent = (
    Tick
    | ChildExited
    | Ordered
    | Signalled
    | ChecksDone
    | SlurmAnswered
    | VerdictFileFound
    | NoVerdict
    | InBatchJob
    | BatchHostAnswered
    | DeedDone
)

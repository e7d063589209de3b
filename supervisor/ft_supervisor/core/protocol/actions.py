"""The actions that the three machines return. The shells carry them out in the order given, and decide nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from ft_supervisor.core.protocol.agent_facts import AgentFact
from ft_supervisor.core.protocol.coordinator_facts import CoordinatorFact
from ft_supervisor.core.protocol.daemon_facts import DaemonFact
from ft_supervisor.core.protocol.health_types import Round
from ft_supervisor.core.protocol.messages import AgentGone, Run, ToAgent, ToCoordinator
from ft_supervisor.core.protocol.model import Cycle, Memory, Verdict
from ft_supervisor.core.protocol.orders import Order
from ft_supervisor.core.protocol.summary import Summary


@dataclass(frozen=True)
class Leave:
    """End this process. `code` is the node's exit code, where the process is an agent or a daemon."""

    code: int
    verdict: Verdict | None
    reason: str


# -- the coordinator's


@dataclass(frozen=True)
class Mail:
    """Push `message` into this node's mail."""

    infra_rank: int
    incarnation: int
    connection: int
    message: ToAgent


@dataclass(frozen=True)
class Pulse:
    """Set the store's pulse; see events.Looked."""

    round: int
    term: int | None
    lease: int


@dataclass(frozen=True)
class WriteVerdict:
    """Write the run's verdict file, with `summary` in it, unless there is one. VerdictWritten follows, unless the file
    system hangs."""

    verdict: Verdict
    summary: Summary = field(default=Summary(), compare=False)


@dataclass(frozen=True)
class ClaimClose:
    """Claim `permanent_close` for this verdict (compare and set). CloseHeld with what it then holds must follow."""

    verdict: Verdict


@dataclass(frozen=True)
class LookForVerdict:
    """Look whether the run's verdict file is there; VerdictFileFound follows if so. A daemon gets NoVerdict if not."""


@dataclass(frozen=True)
class ReadStep:
    """Read the job's step file; StepRead follows."""


# -- the agent's


@dataclass(frozen=True)
class Dial:
    """Give up the present connection, if any, and connect to the first of these candidates that answers.

    Goes on until Connected, or until the next Dial.
    """

    candidates: tuple[int, ...]


@dataclass(frozen=True)
class Send:
    """Push `message` to the coordinator's inbox. Without a connection it is dropped: the next Register has it all."""

    message: ToCoordinator


@dataclass(frozen=True)
class Start:
    """Start the workers: the parked ones are called again, unless `run.fresh`, and the others are new processes.

    WorkersStarted follows; then WorkersExited, also when their command cannot be run, or CannotStart.
    """

    run: Run


@dataclass(frozen=True)
class StopWorkers:
    """Send `signal` to the workers, SIGKILL after `grace` seconds (0: at once), then end every descendant. WorkersGone
    follows.

    `park`: a worker that can be parked is asked to leave its function instead, and gets SIGKILL `timeouts.quiesce`
    later unless it is parked by then. A later StopWorkers with a shorter grace brings the SIGKILL forward; a later one
    without `park` kills at once the workers that were asked to park or are parked. `signal` "": only wait for
    `grace`, because the workers have got a signal already.
    """

    cycle: Cycle
    grace: float
    signal: str = "SIGTERM"
    park: bool = False


@dataclass(frozen=True)
class ReleaseWorkers:
    """Let the workers of `cycle` that wait in the restartable function with this number, or in an earlier one, return
    from it."""

    cycle: Cycle
    functions: int


@dataclass(frozen=True)
class EndWorkers:
    """Kill these workers of `cycle`: they have failed, but their processes live. A rule ignores the failure, so the
    other workers go on."""

    cycle: Cycle
    local_ranks: tuple[int, ...]


@dataclass(frozen=True)
class DropParked:
    """Kill the workers that are parked, and park none of those that run: all workers of some cycle were to be new
    processes, and no older one goes on after it."""


@dataclass(frozen=True)
class LookAtWorkers:
    """Look for signs of work of the workers of `cycle`, and with `stacks` at their main threads' stacks; WorkersSeen
    follows. One at a time: while a look is under way, another is not begun."""

    cycle: Cycle
    stacks: bool


@dataclass(frozen=True)
class GatherEvidence:
    """Look what the living workers of `cycle` do, and write their stacks to files, without harm to them; EvidenceTaken
    with this `number` follows within evidence.TAKING, and nothing is waited for beyond that. A later one replaces it.
    `gently`: they go on, so they get no signal, and their output is not shown as that of failed ones.
    """

    cycle: Cycle
    number: int
    gently: bool = False


@dataclass(frozen=True)
class EnterBarrier:
    """Enter torch's exit barrier of this cycle, once, in the background."""

    cycle: Cycle
    world_size: int


@dataclass(frozen=True)
class Tell:
    """Send an order to the other end of the link: a child's goes to its daemon, the daemon's to `child`."""

    order: Order
    child: str = "agent"


# -- the daemon's


@dataclass(frozen=True)
class SpawnAgent:
    """Start this node's next agent."""

    incarnation: int
    memory: Memory


@dataclass(frozen=True)
class SpawnCoordinator:
    """Start this node's next coordinator."""

    incarnation: int
    memory: Memory


@dataclass(frozen=True)
class KillChild:
    """Send SIGKILL to the child and everything below it. ChildExited follows."""

    child: str


@dataclass(frozen=True)
class CopyVerdict:
    """Keep a copy of the verdict in the node's own folder; with `shared`, also in the run's folder if none is there.

    `summary`: the line for Slurm's accounting; "" if this node's coordinator has not closed the job with this verdict.
    """

    verdict: Verdict
    shared: bool = False
    summary: str = field(default="", compare=False)


@dataclass(frozen=True)
class Push:
    """Push this message into the inbox of the store at this address. It may be lost; a new one supersedes it."""

    host: str
    port: int
    message: AgentGone


@dataclass(frozen=True)
class RunChecks:
    """Run these health checks; ChecksDone follows, within their own bounds."""

    round: Round


@dataclass(frozen=True)
class CallSlurm:
    """Ask Slurm about the job and its nodes (orders.AskSlurm); SlurmAnswered follows, within a bound."""

    urgent: bool


@dataclass(frozen=True)
class FinishFiles:
    """Copy the node's journals to the run's folder, and wait for all files that are being written, within a bound."""


@dataclass(frozen=True)
class KillLeftovers:
    """Send SIGKILL to all processes that this node's children have left behind, within a bound."""


@dataclass(frozen=True)
class AskBatchHost:
    """Ask slurmctld once about the node that runs the batch script; BatchHostAnswered follows, unless Slurm hangs."""


@dataclass(frozen=True)
class WriteComment:
    """Set our part of the job's comment to `text`, unless it begins with `head` already: then it is of this run.
    DeedDone follows, within a bound."""

    text: str
    head: str


@dataclass(frozen=True)
class ForbidRequeue:
    """Have Slurm leave the job ended with this exit code, where it would run the job again after each end
    (--requeue=expedite). DeedDone follows, within a bound."""

    exit_code: int


@dataclass(frozen=True)
class RequeueJob:
    """Have Slurm run the job again, which ends all of its processes, this one too. DeedDone follows, within a bound."""


@dataclass(frozen=True)
class CompleteJob:
    """End the job in Slurm with this exit code as soon as its batch script cannot (ft_slurm.completion.complete).

    `host_lost`: the coordinator has lost the batch host. DeedDone follows, perhaps after minutes.
    """

    exit_code: int
    host_lost: bool


@dataclass(frozen=True)
class StopCompleting:
    """Stop waiting for CompleteJob, and log that the job is left running, with `why`."""

    why: str


Fact = AgentFact | CoordinatorFact | DaemonFact


@dataclass(frozen=True)
class Announce:
    """Announce a fact: write it to the log, the journal, metrics and status."""

    fact: Fact


CoordinatorAction = Announce | Mail | Pulse | WriteVerdict | ClaimClose | LookForVerdict | ReadStep | Tell | Leave
AgentAction = (
    Announce
    | Dial
    | Send
    | Start
    | StopWorkers
    | ReleaseWorkers
    | EndWorkers
    | DropParked
    | LookAtWorkers
    | GatherEvidence
    | EnterBarrier
    | Tell
    | Leave
)
DaemonAction = (
    Announce
    | SpawnAgent
    | SpawnCoordinator
    | KillChild
    | Tell
    | RunChecks
    | CallSlurm
    | Push
    | CopyVerdict
    | LookForVerdict
    | FinishFiles
    | KillLeftovers
    | AskBatchHost
    | WriteComment
    | ForbidRequeue
    | RequeueJob
    | CompleteJob
    | StopCompleting
    | Leave
)

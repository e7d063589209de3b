"""The facts that a coordinator announces, as data.

The log (process.log_lines makes a line of each fact), the journal, metrics, status and the history of a run are made of
facts. Nodes are infra_ranks, times are seconds, and nothing here has to be parsed: a `reason` is one line for people. A
new fact needs a line in process.log_lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.protocol.evidence import Explanation
from ft_supervisor.core.protocol.model import Cycle, Failure, Problem, Verdict
from ft_supervisor.core.protocol.settings import Cause, OnExhausted, Response, RestartMode, RungReason

# -- leadership


@dataclass(frozen=True)
class Preparing:
    """A candidate asks `nodes` nodes for their promise of `term`."""

    term: int
    nodes: int


@dataclass(frozen=True)
class TookCharge:
    """The coordinator leads `term`. `promises`: how many nodes have promised it; None for a job's first coordinator,
    which needs none and takes nothing over."""

    term: int
    promises: int | None

    @property
    def takeover(self) -> bool:
        """Whether there may have been another coordinator before."""
        return self.promises is not None


@dataclass(frozen=True)
class SteppedDown:
    """The coordinator does not lead `term` any more."""

    term: int
    reason: str


@dataclass(frozen=True)
class MajorityLost:
    """No majority of these members (`ranks.format_ranks`) answers: nothing is decided until one does."""

    members: str


@dataclass(frozen=True)
class MajorityBack:
    """A majority of these members (`ranks.format_ranks`) answers again."""

    term: int
    members: str


@dataclass(frozen=True)
class RosterChanged:
    """The coordinator proposes a list of members. `number`: it grows with each list. `former`: the list that it
    replaces, "" once a majority of both keeps the new one. Both are written by `ranks.format_ranks`."""

    number: int
    members: str
    former: str


@dataclass(frozen=True)
class TickLate:
    """The coordinator's process was suspended for `seconds`."""

    seconds: float


@dataclass(frozen=True)
class MessageDropped:
    """The coordinator did not act on a node's message. `message`: its type. `reason` None: it is old. `more`: how many
    alike were dropped since the last line."""

    message: str
    infra_rank: int
    term: int
    reason: str | None
    more: int = 0


# -- nodes and Slurm


@dataclass(frozen=True)
class NodesMissing:
    """Before the first cycle these `nodes` (`ranks.format_ranks`) have not come. `left`: seconds until the job begins
    without them if `enough` others are here, else until it gives up."""

    nodes: str
    enough: bool
    left: float


@dataclass(frozen=True)
class NodeRegistered:
    """A node has promised the coordinator's term and has sent its whole memory."""

    infra_rank: int
    incarnation: int


@dataclass(frozen=True)
class NodeLost:
    """A node sent nothing for `bound` seconds. `heard`: when it last did, by the coordinator's own clock."""

    infra_rank: int
    heard: float
    bound: float


def why_lost(name: str, bound: float) -> str:
    """Return one line for people about a NodeLost. `name`: the node's; `bound`: in seconds."""
    return f"{name} was not heard for {bound:g} s"


@dataclass(frozen=True)
class NodeUnhealthy:
    """A node is not to be chosen any more."""

    infra_rank: int
    problem: Problem


@dataclass(frozen=True)
class NodesSuspected:
    """These nodes have not answered Stop within `seconds`."""

    nodes: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class SlurmNews:
    """Slurm's answer about the job has changed. `problem`: Slurm could not be asked."""

    reason: str
    problem: bool


# -- cycles


@dataclass(frozen=True)
class CycleStarted:
    """A training world begins with the nodes of `group`; `former`: those of the cycle before it; both by group_rank.
    `choice`: why these nodes were chosen. `after`: the reason of the decision before it, "" for the first cycle."""

    cycle: Cycle
    former: tuple[int, ...]
    group: tuple[int, ...]
    choice: str
    after: str = ""

    @property
    def reason(self) -> str:
        """One line for people."""
        return f"{self.after}; {self.choice}" if self.after else self.choice


@dataclass(frozen=True)
class NodePromoted:
    """`infra_rank` has taken the group_rank of the node `instead_of`."""

    infra_rank: int
    instead_of: int
    group_rank: int


@dataclass(frozen=True)
class FailuresHeard:
    """A node has reported that this many of its workers failed."""

    infra_rank: int
    cycle: Cycle
    failures: int


@dataclass(frozen=True)
class HangHeard:
    """A node has reported that workers of `cycle` hang. `nodes`: so many are asked for evidence, if it is the first."""

    infra_rank: int
    cycle: Cycle
    nodes: int


@dataclass(frozen=True)
class HangExplained:
    """All workers of `cycle` were looked at, as it hangs, before any was stopped. `infra_rank`: the culprits' node;
    None if no rank stands out, or if they are on several nodes. `since`: when the silence began, in seconds since the
    epoch by the clock of a node, 0 if that is not known. `seconds`: from the first report to this. `silent`: the nodes
    that have not answered, of `asked`. `reason`: as of the failed cycle."""

    cycle: Cycle
    reason: str
    infra_rank: int | None
    explanation: Explanation
    since: float
    seconds: float
    asked: int
    silent: tuple[int, ...] = ()


@dataclass(frozen=True)
class CycleFailed:
    """The running cycle cannot go on, according to the first report. `infra_rank`: the node that failed. `cause` None:
    none that a rule could name. `growth`: nothing failed, the job can have more nodes."""

    cycle: Cycle | None
    reason: str
    cause: Cause | None
    infra_rank: int | None
    growth: bool = False


@dataclass(frozen=True)
class Decided:
    """A decision after a failed cycle. `response`: the rule's; `gives_up`: the job ends. `rule`: the index of the rule
    that answers, None where none is needed. `how`, `why`: the rung of the restart, and what led to it; None where the
    job ends, or workers.restart is process. `spent`: how often this rule has answered, within its budget's
    window. `used`: restarts that all rules together have charged. `replaced`: nodes
    that are excluded from now on. `pause`: seconds until the next cycle. `cause`, `growth`: as in CycleFailed, of the
    failure that decides."""

    cycle: Cycle | None
    response: Response
    gives_up: bool
    reason: str
    cause: Cause | None
    rule: int | None
    used: int
    replaced: tuple[int, ...]
    pause: float
    growth: bool = False
    how: RestartMode | None = None
    why: RungReason | None = None
    spent: int = 0


@dataclass(frozen=True)
class FirstFailure:
    """The failure that decides, with the last lines of that worker in `failure`. `rank`: the worker's; None if it is
    not one of the cycle's workers."""

    cycle: Cycle | None
    rank: int | None
    infra_rank: int
    failure: Failure


@dataclass(frozen=True)
class FailuresExplained:
    """A node was lost, and then this many workers of other nodes failed: their errors are consequences."""

    cycle: Cycle | None
    infra_rank: int
    workers: int


@dataclass(frozen=True)
class TooFewNodes:
    """No group can be made of the nodes that are left. `on_exhausted`: the policy's answer to that."""

    reason: str
    on_exhausted: OnExhausted


# -- the verdict


@dataclass(frozen=True)
class VerdictProposed:
    """The coordinator asks the members to accept this verdict; it counts when a majority has."""

    verdict: Verdict


@dataclass(frozen=True)
class VerdictFileHangs:
    """The verdict's file could not be written in time: the job ends without waiting for it any longer."""


@dataclass(frozen=True)
class VerdictClosed:
    """The verdict is claimed, and it is sent to the nodes."""

    verdict: Verdict


CoordinatorFact = (
    Preparing
    | TookCharge
    | SteppedDown
    | MajorityLost
    | MajorityBack
    | RosterChanged
    | TickLate
    | MessageDropped
    | NodesMissing
    | NodeRegistered
    | NodeLost
    | NodeUnhealthy
    | NodesSuspected
    | SlurmNews
    | CycleStarted
    | NodePromoted
    | FailuresHeard
    | HangHeard
    | HangExplained
    | CycleFailed
    | Decided
    | FirstFailure
    | FailuresExplained
    | TooFewNodes
    | VerdictProposed
    | VerdictFileHangs
    | VerdictClosed
)

"""What became of one run: its nodes, its cycles, its failures and the time that they took. Types only.

All times are seconds since the epoch, by the clock of the node that wrote them down; durations are seconds. None stands
for what the journals that are left cannot tell. `history.builder` makes it of what journals say.

Time lost. A failure's time is split at the moments that somebody has written down:

    detection     the worker's exit, by its agent's clock, or of a lost node the last time that it was heard, or of a
                  worker that hangs the beginning of its silence, until the coordinator ends the cycle. None where the
                  clocks contradict each other
    stop          until nothing of the cycle can run any more: every one of its nodes has stopped or was given up
    decision      until the next cycle begins, or the verdict is proposed: what to do, a rule's pause, waiting for nodes
    rendezvous    until the last of the new cycle's agents starts its workers, of those whose journals are there
    worker_start  until each of those workers has sent its first heartbeat; None for workers that send none

Slurm's comment (core.protocol.summary) and the metrics are the coordinator's, who knows no more than that it told the
next cycle to begin: what they call lost ends there.

Effective training time ratio. The time in which the whole training world was up, divided by the time from the run's
first line in any journal until its verdict (or, without one, the last line). A cycle counts from the moment at which
its workers run (the first heartbeat of the last one, else the start by the last agent, else the beginning of the
cycle) to its first failure, or to the success of its last node. Steps that a failure has undone, back to the last
checkpoint, are counted as training: nothing in a journal tells them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ft_supervisor.core.protocol.model import Failure, Verdict
from ft_supervisor.run_folder.left_running import LeftRunning


class State(StrEnum):
    """What a node is, as the coordinator in charge sees it."""

    STANDBY = "standby"
    ACTIVE = "active"
    """It runs workers of a cycle that nothing is wrong with."""
    STOPPED = "stopped"
    """Its cycle has failed; it waits for the next one."""
    LOST = "lost"
    """From the last time that it was heard."""
    EXCLUDED = "excluded"
    """Not to be chosen again: a rule or a health check says so."""


@dataclass(frozen=True)
class Span:
    """`end` None: until the end of what is known. `cycle` and `group_rank` of an active node's; `reason` of a lost or
    excluded one's, "" where nobody gave one."""

    state: State
    start: float
    end: float | None
    cycle: str = ""
    group_rank: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class NodeStory:
    """One node. `spans` are in order and do not overlap; before the first it had not come, after an ended last one it
    had left."""

    infra_rank: int
    name: str
    spans: tuple[Span, ...]

    @property
    def state(self) -> State | None:
        """The last that is known; None for a node that has left, or has never come."""
        return self.spans[-1].state if self.spans and self.spans[-1].end is None else None


@dataclass(frozen=True)
class Loss:
    """What a failure cost. `at`: when it happened, as far as that is known. `resumed`: when training went on, None if
    it did not. See the module."""

    at: float
    detection: float | None
    stop: float | None
    decision: float | None
    rendezvous: float | None
    worker_start: float | None
    resumed: float | None
    total: float | None


@dataclass(frozen=True)
class LostNode:
    """`at`: when it was last heard."""

    node: str
    at: float


class CycleEnd(StrEnum):
    """How a cycle can end."""

    RUNNING = "running"
    """It did not, as far as is known."""
    SUCCESS = "success"
    FAILED = "failed"
    ENDED = "ended"
    """Nothing was wrong with it: the job was ended, by Slurm or a person."""
    UNKNOWN = "unknown"
    """There is a later one, and the journal that told why is missing."""


@dataclass(frozen=True)
class CycleStory:
    """One cycle. `number` is TERM.N, `n` how many there were before. `nodes` are names by group_rank. `cause` is one of
    core.protocol.settings.Cause, `growth`, `other` (what a takeover left unclear, say) or `unknown` (nobody has
    decided); "" for a cycle that did not fail. `reason` is the decision's, else the first that was given; `rule` the
    rule that decided, as FILE:LINE (rule N); `response` what came of it: restart, replace_node, gives_up. `failures`:
    the workers that failed, the first one first, by their nodes' clocks. `lost`: its nodes that were lost as it
    ended."""

    number: str
    term: int
    n: int
    nodes: tuple[str, ...]
    start: float | None
    began: str
    choice: str
    workers_up: float | None
    end: float | None
    ended: CycleEnd
    cause: str = ""
    reason: str = ""
    rule: str = ""
    response: str = ""
    failures: tuple[Failure, ...] = ()
    lost: tuple[LostNode, ...] = ()
    loss: Loss | None = None


@dataclass(frozen=True)
class Takeover:
    """Another coordinator came to be in charge of a running job. `gap`: since the first agent had lost the former one,
    None where no journal of an agent tells."""

    at: float
    term: int
    node: str
    gap: float | None


@dataclass(frozen=True)
class FirstFailure:
    """The worker that failed first in the last failed cycle. `rank` is its RANK, None where its place in the group is
    not known, or it was the agent. `lines`: the last that it printed, () where its output was not kept; `source` names
    the file that they are from, `stacks` the one with what it was doing when it hung, both relative to the run's
    folder. `consequence_of`: the loss of another node that had ended the cycle before, as peers of a lost node fail as
    well; "" where nothing came before."""

    cycle: str
    node: str
    rank: int | None
    failure: Failure
    lines: tuple[str, ...] = ()
    source: str = ""
    stacks: str = ""
    consequence_of: str = ""


@dataclass(frozen=True)
class Fault:
    """Something that `ft-supervisor fault` did to the run, as it has written it down (fault.record): `act` is kill,
    freeze, thaw, cut or heal, `target` worker, agent, coordinator, daemon or node. `rank`: of a worker that was named
    by it; `seconds`: how long a freeze or a cut was to last; `seed`: of a schedule; `cycle`: what ran then, or had just
    ended, "" for nothing."""

    at: float
    act: str
    target: str
    node: str
    rank: int | None = None
    seconds: float | None = None
    seed: int | None = None
    note: str = ""
    cycle: str = ""

    @property
    def hurts(self) -> bool:
        """It is no end of another one."""
        return self.act not in ("thaw", "heal")


@dataclass(frozen=True)
class History:
    """One run. `start`: the first line in any journal; `until`: the last; `ended`: when a coordinator wrote down the
    verdict. `training`: seconds in which all workers of a cycle ran. `verdict` is the run's file's, else what a
    coordinator wrote down. `faults`: of a game day, in order. `notes`: what is missing or odd, one line each, for
    people. `left`: what the run's folder says of a job that still ran in Slurm after its verdict."""

    run_id: str
    nodes: tuple[NodeStory, ...]
    cycles: tuple[CycleStory, ...]
    takeovers: tuple[Takeover, ...]
    start: float | None
    until: float | None
    ended: float | None
    verdict: Verdict | None
    training: float | None
    per_node: int | None = None
    active: int | None = None
    first_failure: FirstFailure | None = None
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = field(default=())
    left: LeftRunning | None = None

    @property
    def ratio(self) -> float | None:
        """The effective training time ratio, 0 to 1."""
        if self.training is None or self.length is None or self.length <= 0:
            return None
        return min(1.0, self.training / self.length)

    @property
    def length(self) -> float | None:
        """Seconds from the first line to the verdict, or to the last line."""
        until = self.ended or self.until
        return None if self.start is None or until is None else until - self.start

    @property
    def lost(self) -> float:
        """Seconds that failures cost, those after which training went on."""
        return sum(cycle.loss.total for cycle in self.cycles if cycle.loss and cycle.loss.resumed and cycle.loss.total)

"""The history of one run: its nodes, its cycles, its failures and the time that they took. Types only.

All times are seconds since the epoch, by the clock of the node that recorded them; durations are seconds. None stands
for values that the remaining journals do not contain. `history.builder` builds it from the journals.

Time lost. A failure's time is split at the moments that a journal has recorded:

    detection     from the failure until the coordinator ends the cycle. The failure is the worker's exit, by its
                  agent's clock; for a lost node the last time that it was heard; for a worker that hangs the beginning
                  of its silence. None where the clocks contradict each other
    stop          until nothing of the cycle can run any more: each of its nodes has stopped, left or been lost
    decision      until the next cycle begins, or the verdict is proposed: the decision itself, a rule's pause, and the
                  wait for nodes
    rendezvous    until the last agent of the new cycle, of those with a journal, has started its workers
    worker_start  until each of those workers has sent its first heartbeat; None for workers that send none

Slurm's comment (core.protocol.summary) and the metrics come from the coordinator, which sees only that the next cycle
begins: the time that they call lost ends there.

Effective training time ratio. The time in which the whole training world was up, divided by the time from the run's
first line in any journal until its verdict (or, without one, the last line). A cycle counts from the moment at which
its workers run (the first heartbeat of the last one, else the start by the last agent, else the beginning of the
cycle) to its first failure, or to the success of its last node. Steps that a failure has undone, back to the last
checkpoint, are counted as training: no journal records them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ft_supervisor.core.protocol.cost import Cost, CycleTimes
from ft_supervisor.core.protocol.evidence import Explanation, Ground
from ft_supervisor.core.protocol.model import Failure, Verdict
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.settings import Culprit
from ft_supervisor.run_folder.left_running import LeftRunning


class SpanState(StrEnum):
    """The state of a node, as the coordinator in charge sees it."""

    STANDBY = "standby"
    STARTING = "starting"
    """It has a place in a cycle that has not failed, and the workers do not train yet."""
    ACTIVE = "active"
    """It trains: it runs workers of a cycle that has not failed."""
    UNNOTICED = "unnoticed"
    """Its cycle has failed, and the coordinator has not noticed that yet."""
    STOPPED = "stopped"
    """Its cycle has failed; it waits for the next one."""
    LOST = "lost"
    """It is silent, counted from the last time that it was heard."""
    EXCLUDED = "excluded"
    """It must not be chosen again, because of a rule or a health check."""


@dataclass(frozen=True)
class Span:
    """A time in which a node had one state. `end` None: until the end of the known time. Starting, active and unnoticed
    nodes have a `cycle` and a `group_rank`; lost and excluded ones have a `reason`, "" if none is recorded."""

    state: SpanState
    start: float
    end: float | None
    cycle: str = ""
    group_rank: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class NodeStory:
    """One node. `spans` are in order and do not overlap; before the first one the node had not come, after the end of
    the last one it had left."""

    infra_rank: int
    name: str
    spans: tuple[Span, ...]

    @property
    def state(self) -> SpanState | None:
        """The last known state; None for a node that has left, or has never come."""
        return self.spans[-1].state if self.spans and self.spans[-1].end is None else None


@dataclass(frozen=True)
class Loss:
    """The time that a failure cost, in the parts that the module defines. `at`: when it happened, as far as that is
    known. `resumed`: when training went on, None if it did not."""

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
    """A node that was lost. `at`: when it was last heard."""

    node: str
    at: float


class CycleEnd(StrEnum):
    """How a cycle can end."""

    RUNNING = "running"
    """It has not ended, as far as is known."""
    SUCCESS = "success"
    FAILED = "failed"
    ENDED = "ended"
    """Slurm or a person ended the job; the cycle had not failed."""
    UNKNOWN = "unknown"
    """A later cycle began, and the journal with the reason is missing."""


@dataclass(frozen=True)
class Made:
    """How many workers of a cycle went on in the processes in which they were parked, were processes that had been
    started ahead (`warm`), and were started then (`cold`). `unknown_nodes`: nodes without a journal of that, as those
    that have died; their workers are not counted."""

    in_process: int
    warm: int
    cold: int
    unknown_nodes: int = 0


@dataclass(frozen=True)
class FirstFailedWorker:
    """The worker that failed first in one cycle. `rank` is its RANK, None if its place in the group is not
    known, or the agent itself failed. `lines`: the last lines that it printed, () if its output was not kept; `source`:
    the file that contains them; `stacks`: the file with its stacks when it hung; both are relative to the run's folder.
    `consequence_of`: the earlier loss of another node that ended the cycle, as peers of a lost node fail as well; ""
    if there was none."""

    cycle: str
    node: str
    rank: int | None
    failure: Failure
    lines: tuple[str, ...] = ()
    source: str = ""
    stacks: str = ""
    consequence_of: str = ""


@dataclass(frozen=True)
class HangStory:
    """Why a cycle hung, after all of its workers were looked at. `reason`: one line, with the culprits' place in the
    program. `node`: the culprits', "" if they are on several nodes, or who began it is not known."""

    reason: str
    node: str
    explanation: Explanation

    @property
    def culprit(self) -> Culprit:
        """Whether it is known which ranks began it, as a rule has it."""
        return Culprit.UNKNOWN if self.explanation.ground is Ground.NONE else Culprit.KNOWN

    @property
    def line(self) -> str:
        """The culprits' place in the program, as "dataloader.py:1284 in __next__"; "" if unknown, or not the same."""
        mine = set(parse_ranks(self.explanation.culprits))
        lines = {one.frame for one in self.explanation.clusters if mine.issuperset(parse_ranks(one.ranks))}
        return lines.pop() if mine and len(lines) == 1 else ""


@dataclass(frozen=True)
class CycleStory:
    """One cycle. `number` is TERM.N, `n` the number of cycles before it. `nodes`: names by group_rank. `began`: why
    it began; `choice`: why its nodes were chosen. `cause` is one of core.protocol.settings.Cause, `growth`, `other`
    (for example where a takeover left it unclear) or `unknown` (no decision is recorded); "" for a cycle that did
    not fail. `reason` is the decision's, else the first recorded one; `rule` the rule that decided, as FILE:LINE
    (rule N); `budget` how often it has answered, with this one, and may; `response` its answer: restart,
    replace_node, gives_up; `how` and `why` the rung of the restart, "" where workers.restart is process. `made`:
    None where no journal has it. `failures`: the workers that failed, in order of time by their nodes' clocks;
    `first`: the one that counts as the cause, None if no worker failed. `lost`: its nodes that were lost as it
    ended. `hang`: why it hung, None if it did not end for that, or its workers could not be looked at."""

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
    how: str = ""
    why: str = ""
    made: Made | None = None
    times: CycleTimes = field(default_factory=CycleTimes)
    first: FirstFailedWorker | None = None
    budget: tuple[int, int] | None = None
    hang: HangStory | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, of which the step file told. `at`: when that was written; `cost`: seconds for which the training
    stood still, None where no heartbeats tell."""

    step: int
    at: float
    cost: float | None = None


@dataclass(frozen=True)
class Takeover:
    """Another coordinator took charge of a running job. `gap`: seconds since the first agent lost the former one, None
    if no agent's journal has that."""

    at: float
    term: int
    node: str
    gap: float | None


@dataclass(frozen=True)
class Fault:
    """A fault that `ft-supervisor fault` injected and recorded (fault.record). `act` is kill, freeze, thaw, cut or
    heal; `target` worker, agent, coordinator, daemon or node. `rank`: that of a worker that was chosen by rank;
    `seconds`: the planned length of a freeze or a cut; `seed`: that of a schedule; `cycle`: the cycle that ran then, or
    had just ended, "" for none."""

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
        """Whether it does damage; False for the end of a freeze or a cut."""
        return self.act not in ("thaw", "heal")


@dataclass(frozen=True)
class History:
    """One run. `start`, `until`: times of the first and the last line in any journal; `ended`: when a coordinator
    recorded the verdict. `training`: seconds in which all workers of a cycle ran. `verdict` is that of verdict.json,
    else the one that a coordinator recorded. `name`: the job's, as configured, "" if it has none. `per_node`: workers
    on each node; `active`: nodes that are to train. `faults`: those of a game day, in order. `notes`: missing or odd
    files, one line each, for people. `left`: the note in the run's folder on a job that still ran in Slurm after its
    verdict. `cost`: the account of the run's time, None without a journal. `checkpoints`: in order of time, () without
    checkpoint.step_file."""

    run_id: str
    nodes: tuple[NodeStory, ...]
    cycles: tuple[CycleStory, ...]
    takeovers: tuple[Takeover, ...]
    start: float | None
    until: float | None
    ended: float | None
    verdict: Verdict | None
    training: float | None
    name: str = ""
    per_node: int | None = None
    active: int | None = None
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = field(default=())
    left: LeftRunning | None = None
    cost: Cost | None = None
    checkpoints: tuple[Checkpoint, ...] = ()

    @property
    def first_failure(self) -> FirstFailedWorker | None:
        """The first failure of the last cycle in which a worker failed; None if there was none."""
        return next((cycle.first for cycle in reversed(self.cycles) if cycle.first is not None), None)

    @property
    def ratio(self) -> float | None:
        """The effective training time ratio, 0 to 1; at most that if the cost is not exact."""
        return self.cost.ratio if self.cost else None

    @property
    def length(self) -> float | None:
        """Seconds from the first line to the verdict, or to the last line."""
        until = self.ended or self.until
        return None if self.start is None or until is None else until - self.start

    @property
    def lost(self) -> float:
        """Seconds that failures cost; at least these if the cost is not exact."""
        return self.cost.lost if self.cost else 0.0

"""The snapshot: the state of the job as the coordinator in charge sees it at one moment, as plain data.

As JSON it is `<run folder>/status.json` (coordinator.status_writer). Nodes that differ only in their ranks share one
entry, so that 10,000 of them take some lines and not megabytes; `status --json` is easier to use in programs.

    {"version": 3, "run_id", "job",       the configuration's name
     "time", "interval",                  when it was made, and the usual time until the next one
     "coordinator": {"node", "infra_rank", "term", "in_charge", "majority"},
     "phase",                             joining, running, stopping, closing
     "wanted",                            the most nodes that may train
     "waits": null | {"nodes", "enough", "left"},   the nodes that a first cycle waits for
     "lost_after",                        seconds of silence after which a node is lost
     "per_node",                          workers of each node
     "step": null | {"step", "time"},         the training step that rank 0's node has told last, and when
     "checkpoint": null | {"step", "time"},   the number in checkpoint.step_file, and when that was written
     "events": [{"time", "text"}],        the last EVENTS that people may want to see, the newest last
     "cycle": null | {"name", "number", "started", "size"},
     "nodes": [{"role", "infra_ranks", "group_ranks", "domain", "heartbeat_age", "silent", "restarts", "losses",
                "running", "draining", "health"}],
     "names": [the nodes' by infra_rank],
     "candidates",                        nodes that keep a coordinator, as ranges of infra_ranks: "0-2"
     "members", "spares", "survives",     counts; survives: nodes that may still die at the same moment
     "budgets": [{"rule", "match", "action", "used", "max", "window"}],
     "ends_in", "slurm_away",             seconds until Slurm's time limit, null for none; Slurm does not answer
     "decision": null | {"what", "reason", "rule", "cycle", "time", "how", "why", "cause"},
     "verdict": null | {"outcome", "reason", "exit_code", "again", "final"},
     "cost": null | {"first_start", "training", "detection", "stop", "decision", "waiting", "rendezvous", "starting",
                     "end", "unknown",    seconds by what they went into; their sum is the time so far
                     "partial",           a former coordinator's time is missing
                     "nodes", "workers", "gpus", "repeated", "repeated_known", "steps_twice"}}

`role` is one of active, standby, excluded, unhealthy, unregistered, lost, left; `what` one of cycle_started,
cycle_failed, restart, replace_node, gives_up; `how` and `why` are the rung of a restart, null where workers.restart is
process. All times are seconds since the epoch by the clock of the coordinator's node; all ages and durations are
seconds. Each change of the keys is a new version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ft_supervisor.core.protocol.bounds import AnyTerm, Count, Duration, ExitCode, Moment, Rank
from ft_supervisor.core.protocol.codec import CodecError, from_plain, to_plain
from ft_supervisor.core.protocol.cost import Cost
from ft_supervisor.core.protocol.model import JobPhase
from ft_supervisor.core.protocol.ranks import parse_ranks

VERSION = 3
NAME = "status.json"
EVERY = 2.0
"""Seconds between two snapshots, at most."""
EVENTS = 5
MAX_BYTES = 32 * 2**20
"""Size of a snapshot of a hundred thousand nodes that differ in everything."""


class NodeRole(StrEnum):
    """The role of a node in the job at this moment. It is the first that fits, of: lost, left, excluded, unhealthy,
    unregistered (a member that has not registered with this coordinator yet, and may be training), active, standby."""

    ACTIVE = "active"
    STANDBY = "standby"
    EXCLUDED = "excluded"
    UNHEALTHY = "unhealthy"
    UNREGISTERED = "unregistered"
    LOST = "lost"
    LEFT = "left"


@dataclass(frozen=True)
class NodeStatus:
    """One node, or several equal ones.

    `infra_ranks`: the nodes, as ranges in rising order. `group_ranks`: their group_ranks in the present cycle, as
    ranges in the same order; either all nodes have one, or none has, and it is "". `heartbeat_age`: seconds since the
    most silent of them was heard, or since a takeover if it has not registered after that; None if it has never
    registered. `silent`: not heard for `timeouts.coordinator`, or never; silent nodes share an entry only if they have
    been silent for the same number of whole seconds. `restarts`: number of the node's agents that have died and were
    replaced, not of cycles; `losses`: number of times that this coordinator has lost the node.
    `running`: its workers may be running. `draining`: Slurm is about to take the node away. `health`: its problem, ""
    for none.
    """

    role: NodeRole
    infra_ranks: str
    group_ranks: str
    domain: str
    heartbeat_age: Duration | None
    silent: bool
    restarts: Count
    losses: Count
    running: bool
    draining: bool
    health: str

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(parse_ranks(self.infra_ranks))


@dataclass(frozen=True)
class CoordinatorStatus:
    """The coordinator that made the snapshot. `in_charge` with `majority` False: it decides nothing until it hears from
    more nodes."""

    node: str
    infra_rank: Rank
    term: AnyTerm | None
    in_charge: bool
    majority: bool


@dataclass(frozen=True)
class CycleStatus:
    """The newest cycle. `number`: number of cycles before it. `started`: when it began; None if a former coordinator
    began it and the time is not known. `size`: number of active nodes."""

    name: str
    number: Count
    started: Moment | None
    size: Count


@dataclass(frozen=True)
class WaitStatus:
    """The nodes that have not come before the first cycle, as ranges of infra_ranks. `left`: seconds until the job
    begins without them if `enough` others are here, else until it gives up."""

    nodes: str
    enough: bool
    left: Duration


@dataclass(frozen=True)
class BudgetStatus:
    """The budget of a rule of `failures`. `rule`: FILE:LINE and its number; `match`: the failures that it matches;
    `action`: its answer. `used` counts the answers within `window` seconds, or all of them if that is None."""

    rule: str
    match: str
    action: str
    used: Count
    max: Count
    window: Duration | None

    @property
    def left(self) -> int:
        """Number of times that the rule may still answer."""
        return max(0, self.max - self.used)


@dataclass(frozen=True)
class DecisionStatus:
    """The newest decision. `what` is cycle_started for the first cycle; cycle_failed while a failed cycle is stopped,
    and then restart, replace_node or gives_up. `how`, `why`: the rung of the restart, as in Decided. `cause`: the
    failure's core.protocol.settings.Cause, None where there is none."""

    what: str
    reason: str
    rule: str | None
    cycle: str | None
    time: Moment
    how: str | None = None
    why: str | None = None
    cause: str | None = None


@dataclass(frozen=True)
class VerdictStatus:
    """How the job ends. `final` False: the verdict is proposed, and a majority does not keep it yet."""

    outcome: str
    reason: str
    exit_code: ExitCode
    again: str
    final: bool


@dataclass(frozen=True)
class StepStatus:
    """The newest training step that is known. `time`: when it was told."""

    step: Count
    time: Moment


@dataclass(frozen=True)
class CheckpointStatus:
    """The newest checkpoint, by the step file. `time`: when that was written, by its file system's clock."""

    step: Count
    time: Moment


@dataclass(frozen=True)
class EventStatus:
    """Something that has happened. `text`: one line for people."""

    time: Moment
    text: str


@dataclass(frozen=True)
class Snapshot:
    """The state of the job. `interval`: usual number of seconds until the next snapshot. `names`: the nodes' names by
    infra_rank. `wanted`: the most nodes that may train. `waits`: None once a cycle has begun, or if no node is missing.
    `lost_after`: seconds of silence after which a node is lost. `phase`: joining, running, stopping or closing; for a
    coordinator that is not in charge, candidate or preparing. `candidates`: the nodes that keep a coordinator, as
    ranges of infra_ranks. `members`: length of the list of members; `survives`: number of nodes that may still die at
    the same moment. `spares`: standbys that can replace a node, and that no first cycle needs. `ends_in`: seconds until
    Slurm's time limit; None if there is none, or it is not known. `slurm_away`: Slurm did not answer when it was last
    asked. `cost`: the account of the job's time, of this coordinator's alone after a takeover. `per_node`: workers of
    each node. `step`: None as long as no worker has named one. `checkpoint`: None without a step file. `events`: the
    last EVENTS of this coordinator."""

    version: int
    run_id: str
    job: str
    time: Moment
    interval: Duration
    coordinator: CoordinatorStatus
    phase: JobPhase
    wanted: Count
    cycle: CycleStatus | None
    nodes: tuple[NodeStatus, ...]
    names: tuple[str, ...]
    candidates: str
    members: Count
    spares: Count
    survives: Count
    budgets: tuple[BudgetStatus, ...]
    ends_in: float | None
    slurm_away: bool
    decision: DecisionStatus | None
    verdict: VerdictStatus | None
    cost: Cost | None = None
    waits: WaitStatus | None = None
    lost_after: Duration = 0.0
    per_node: Count = 0
    checkpoint: CheckpointStatus | None = None
    events: tuple[EventStatus, ...] = ()
    step: StepStatus | None = None

    def count(self, role: NodeRole) -> int:
        """Return the number of nodes with this role."""
        return sum(entry.count for entry in self.nodes if entry.role is role)

    def each(self) -> Iterator[tuple[str, int, int | None, NodeStatus]]:
        """Yield each node, by infra_rank: its name, infra_rank, group_rank and entry. Raises IndexError for a rank
        without a name."""
        found = []
        for entry in self.nodes:
            ranks = parse_ranks(entry.infra_ranks)
            groups: tuple[int | None, ...] = parse_ranks(entry.group_ranks) or (None,) * len(ranks)
            found += [(rank, group, entry) for rank, group in zip(ranks, groups, strict=True)]
        for rank, group, entry in sorted(found, key=lambda each: each[0]):
            yield self.names[rank], rank, group, entry


class BadSnapshot(Exception):
    """The data is no snapshot, or one of another version. The message is one line."""


def dump(snapshot: Snapshot) -> bytes:
    """Return the snapshot as one line of JSON."""
    return json.dumps(to_plain(snapshot), separators=(",", ":")).encode() + b"\n"


def load(data: bytes) -> Snapshot:
    """Return the snapshot that `dump` turned into `data`. Raises BadSnapshot."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadSnapshot(f"not JSON: {error}") from None
    version = value.get("version") if isinstance(value, dict) else None
    if version != VERSION:
        raise BadSnapshot(f"version {version!r:.40}, not {VERSION}: not written by this ft-supervisor")
    try:
        found: Snapshot = from_plain(value, Snapshot)
        for entry in found.nodes:
            ranks, groups = parse_ranks(entry.infra_ranks), parse_ranks(entry.group_ranks)
            if max(ranks, default=-1) >= len(found.names) or len(groups) not in (0, len(ranks)):
                raise BadSnapshot("the nodes' ranks make no sense")
        parse_ranks(found.candidates)
        if found.waits is not None and max(parse_ranks(found.waits.nodes), default=-1) >= len(found.names):
            raise BadSnapshot("the missing nodes' ranks make no sense")
    except (CodecError, ValueError) as error:
        raise BadSnapshot(str(error)) from None
    return found

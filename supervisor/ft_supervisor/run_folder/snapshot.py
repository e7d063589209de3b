"""What the coordinator in charge sees at one moment, as plain data: for status, metrics and whoever else looks on.

As JSON it is `<run folder>/status.json` (coordinator.status_writer). Nodes that are the same in everything but their
ranks share one entry, so that 10,000 of them take some lines and not megabytes; programs have it easier with `status
--json`.

    {"version": 1, "run_id", "job",       the configuration's name
     "time", "interval",                  when it was made, and how soon the next one is, usually
     "coordinator": {"node", "infra_rank", "term", "in_charge", "majority"},
     "phase",                             joining, running, stopping, closing
     "wanted",                            the most nodes that may train
     "cycle": null | {"name", "number", "started", "size"},
     "nodes": [{"role", "infra_ranks", "group_ranks", "domain", "heartbeat_age", "silent", "restarts", "losses",
                "running", "draining", "health"}],
     "names": [the nodes' by infra_rank],
     "candidates",                        who keeps a coordinator, as ranges of infra_ranks: "0-2"
     "members", "spares", "survives",     counts; how many more nodes may die at the same moment
     "budgets": [{"rule", "match", "action", "used", "max", "window"}],
     "ends_in", "slurm_away",             seconds until Slurm's time limit, null for none; Slurm does not answer
     "decision": null | {"what", "reason", "rule", "cycle", "time"},
     "verdict": null | {"outcome", "reason", "exit_code", "again", "final"}}

`role` is one of active, standby, excluded, unhealthy, unregistered, lost, left; `what` one of cycle_started,
cycle_failed, restart, replace_node, gives_up. All times are seconds since the epoch by the clock of the coordinator's
node, all ages and durations seconds. Another set of fields is another version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ft_supervisor.core.protocol.bounds import AnyTerm, Count, Duration, ExitCode, Moment, Rank
from ft_supervisor.core.protocol.codec import CodecError, from_plain, to_plain
from ft_supervisor.core.protocol.ranks import unfold

VERSION = 1
NAME = "status.json"
EVERY = 2.0
"""Seconds between two of them, at most."""
MAX_BYTES = 32 * 2**20
"""A hundred thousand nodes that differ in everything would take so much."""


class Role(StrEnum):
    """What a node is to the job just now. The first that fits, of: lost, left, excluded, unhealthy, unregistered (a
    member that this coordinator has not heard from yet; it may be training), active, standby."""

    ACTIVE = "active"
    STANDBY = "standby"
    EXCLUDED = "excluded"
    UNHEALTHY = "unhealthy"
    UNREGISTERED = "unregistered"
    LOST = "lost"
    LEFT = "left"


@dataclass(frozen=True)
class NodeStatus:
    """One node, or several that are the same.

    `infra_ranks`: whose, folded, rising. `group_ranks`: theirs in the present cycle, folded, in the same order; "" for
    none: either all have one or nobody. `heartbeat_age`: since the most silent of them was heard; None for one that
    has not registered. `silent`: not for `timeouts.coordinator`, or not at all; silent nodes share an entry only with
    those that are silent for as many whole seconds. `restarts`: how many agents of the node have died; `losses`: how
    often this coordinator has lost it. `running`: its workers may be. `draining`: Slurm is about to take it away.
    `health`: what is wrong with it, "" for nothing.
    """

    role: Role
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
        """How many nodes."""
        return len(unfold(self.infra_ranks))


@dataclass(frozen=True)
class CoordinatorStatus:
    """`in_charge` with `majority` False: it decides nothing until it hears more nodes."""

    node: str
    infra_rank: Rank
    term: AnyTerm | None
    in_charge: bool
    majority: bool


@dataclass(frozen=True)
class CycleStatus:
    """The newest cycle. `number`: how many there were before it. `started`: None where a former coordinator began it
    and nobody knows any more. `size`: its active nodes."""

    name: str
    number: Count
    started: Moment | None
    size: Count


@dataclass(frozen=True)
class BudgetStatus:
    """What a rule of `failures` has left. `rule`: FILE:LINE and its number; `match`, `action`: what it is for and what
    it does; `used` counts within `window`, where there is one."""

    rule: str
    match: str
    action: str
    used: Count
    max: Count
    window: Duration | None

    @property
    def left(self) -> int:
        """How often it may still answer."""
        return max(0, self.max - self.used)


@dataclass(frozen=True)
class DecisionStatus:
    """The newest decision: cycle_failed (it is being stopped), then restart, replace_node or gives_up; cycle_started
    for the first cycle."""

    what: str
    reason: str
    rule: str | None
    cycle: str | None
    time: Moment


@dataclass(frozen=True)
class VerdictStatus:
    """How the job ends. `final` False: proposed, and not yet kept by a majority."""

    outcome: str
    reason: str
    exit_code: ExitCode
    again: str
    final: bool


@dataclass(frozen=True)
class Snapshot:
    """`interval`: how soon the next one is made, usually. `names`: the nodes' by infra_rank. `wanted`: the most nodes
    that may train. `phase`: joining, running, stopping, closing; of a coordinator that is not in charge candidate or
    preparing. `candidates`: who keeps a coordinator, folded. `members`: how long the members' list is, and `survives`
    how many more nodes may die at the same moment. `spares`: standbys that can replace somebody. `ends_in`: until
    Slurm's time limit; None for none, or nobody knows. `slurm_away`: it did not answer when it was last asked."""

    version: int
    run_id: str
    job: str
    time: Moment
    interval: Duration
    coordinator: CoordinatorStatus
    phase: str
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

    def count(self, role: Role) -> int:
        """How many nodes have this role."""
        return sum(entry.count for entry in self.nodes if entry.role is role)

    def each(self) -> Iterator[tuple[str, int, int | None, NodeStatus]]:
        """Every node by itself, by infra_rank: its name, infra_rank, group_rank and its entry. IndexError for a rank
        without a name."""
        found = []
        for entry in self.nodes:
            ranks = unfold(entry.infra_ranks)
            groups: tuple[int | None, ...] = unfold(entry.group_ranks) or (None,) * len(ranks)
            found += [(rank, group, entry) for rank, group in zip(ranks, groups, strict=True)]
        for rank, group, entry in sorted(found, key=lambda each: each[0]):
            yield self.names[rank], rank, group, entry


class BadSnapshot(Exception):
    """This is no snapshot, or one of another version; one line."""


def dump(snapshot: Snapshot) -> bytes:
    """As one line of JSON."""
    return json.dumps(to_plain(snapshot), separators=(",", ":")).encode() + b"\n"


def load(data: bytes) -> Snapshot:
    """What `dump` was given. Raises BadSnapshot."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadSnapshot(f"not JSON: {error}") from None
    version = value.get("version") if isinstance(value, dict) else None
    if version != VERSION:
        raise BadSnapshot(f"version {version!r:.40}, not {VERSION}: written by another ft-supervisor, or by nobody")
    try:
        found: Snapshot = from_plain(value, Snapshot)
        for entry in found.nodes:
            ranks, groups = unfold(entry.infra_ranks), unfold(entry.group_ranks)
            if max(ranks, default=-1) >= len(found.names) or len(groups) not in (0, len(ranks)):
                raise BadSnapshot("the nodes' ranks make no sense")
        unfold(found.candidates)
    except (CodecError, ValueError) as error:
        raise BadSnapshot(str(error)) from None
    return found

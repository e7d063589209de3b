"""What the coordinator in charge sees at one moment, as plain data: for status, metrics and whoever else looks on.

As JSON it is `<run folder>/status.json` (coordinator.live). Nodes that are the same in everything but their ranks share
one entry, so that 10,000 of them take some lines and not megabytes; programs have it easier with `status --json`.

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
from functools import lru_cache

from ft_supervisor.core.codec import CodecError, from_plain, to_plain
from ft_supervisor.core.coordinator import CoordinatorMachine
from ft_supervisor.core.cycles import Cycles
from ft_supervisor.core.members import Member
from ft_supervisor.core.ranks import fold, unfold
from ft_supervisor.core.roster import candidates, survivable
from ft_supervisor.core.settings import Match, OnExhausted, Response

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
    heartbeat_age: float | None
    silent: bool
    restarts: int
    losses: int
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
    infra_rank: int
    term: int | None
    in_charge: bool
    majority: bool


@dataclass(frozen=True)
class CycleStatus:
    """The newest cycle. `number`: how many there were before it. `started`: None where a former coordinator began it
    and nobody knows any more. `size`: its active nodes."""

    name: str
    number: int
    started: float | None
    size: int


@dataclass(frozen=True)
class BudgetStatus:
    """What a rule of `failures` has left. `rule`: FILE:LINE and its number; `match`, `action`: what it is for and what
    it does; `used` counts within `window`, where there is one."""

    rule: str
    match: str
    action: str
    used: int
    max: int
    window: float | None

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
    time: float


@dataclass(frozen=True)
class VerdictStatus:
    """How the job ends. `final` False: proposed, and not yet kept by a majority."""

    outcome: str
    reason: str
    exit_code: int
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
    time: float
    interval: float
    coordinator: CoordinatorStatus
    phase: str
    wanted: int
    cycle: CycleStatus | None
    nodes: tuple[NodeStatus, ...]
    names: tuple[str, ...]
    candidates: str
    members: int
    spares: int
    survives: int
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


# -- taken


def snapshot(machine: CoordinatorMachine, now: float, wall: float) -> Snapshot:
    """`now`: the machine's clock, `wall`: seconds since the epoch. Reads only."""
    job, cycles = machine.job, machine.cycles
    nodes = _nodes(machine, now)
    here = sum(entry.count for entry in nodes if entry.role not in (Role.LOST, Role.LEFT))
    fit = sum(entry.count for entry in nodes if entry.role in (Role.ACTIVE, Role.STANDBY, Role.UNREGISTERED))
    members = len(unfold(machine.roster.members))
    keepers = [rank for rank in candidates(job, machine.roster) if _here(machine.members.get(rank))]
    return Snapshot(
        version=VERSION,
        run_id=job.run_id,
        job=_job_name(job.policy),
        time=wall,
        interval=max(EVERY, job.timeouts.heartbeat),
        coordinator=CoordinatorStatus(
            machine.node.name, machine.node.infra_rank, machine.term, machine.term is not None, machine.majority
        ),
        phase=machine.phase,
        wanted=job.active,
        cycle=_cycle(cycles, wall - now),
        nodes=nodes,
        names=job.nodes,
        candidates=fold(keepers),
        members=members,
        spares=sum(entry.count for entry in nodes if entry.role is Role.STANDBY and not entry.draining),
        survives=survivable(members, min(here, members), len(keepers), fit - _least(cycles)),
        budgets=_budgets(cycles, wall),
        ends_in=None if machine.end_at is None else max(0.0, machine.end_at - now),
        slurm_away=machine.slurm_away,
        decision=_decision(cycles, wall - now),
        verdict=_verdict(machine),
    )


def _here(member: Member | None) -> bool:
    return member is not None and member.here


def _least(cycles: Cycles) -> int:
    """The nodes that the job needs to go on."""
    shrinks = cycles.job.settings.placement.on_exhausted in (OnExhausted.SHRINK, OnExhausted.WAIT)
    return cycles.selection.least if shrinks or not cycles.group else max(cycles.selection.least, len(cycles.group))


def _nodes(machine: CoordinatorMachine, now: float) -> tuple[NodeStatus, ...]:
    """One pass over all nodes, as there may be ten thousand."""
    cycles, members = machine.cycles, machine.members
    listed = frozenset(unfold(machine.roster.members))
    group = dict(zip(cycles.group, range(len(cycles.group)), strict=True))
    excluded, draining = cycles.selection.excluded, cycles.selection.draining
    silent = machine.job.timeouts.coordinator
    same: dict[tuple[object, ...], tuple[NodeStatus, list[int], list[int], list[float]]] = {}
    for rank in range(len(machine.job.nodes)):
        member, group_rank = members.get(rank), group.get(rank)
        role = role_of(member, active=group_rank is not None, excluded=rank in excluded, listed=rank in listed)
        age = None
        if member is None or member.register is None:
            key: tuple[object, ...] = (role, group_rank is None, rank in draining, rank in excluded)
        else:
            age = max(0.0, now - member.heard)
            key = (
                role,
                group_rank is None,
                rank in draining,
                rank in excluded,
                member.node.domain_id,
                member.incarnation,
                member.times_lost,
                member.running,
                member.problem,
                None if age < silent else int(age),
            )
        entry = same.get(key)
        if entry is None:
            entry = same[key] = _entry(role, member, rank in draining, rank in excluded), [], [], []
        entry[1].append(rank)
        if group_rank is not None:
            entry[2].append(group_rank)
        if age is not None:
            entry[3].append(age)
    return tuple(_filled(*entry, silent) for entry in same.values())


def role_of(member: Member | None, *, active: bool, excluded: bool, listed: bool) -> Role:
    """`active`: in the present cycle; `excluded`: by a rule; `listed`: a member by the list."""
    if member is None:
        return Role.UNREGISTERED if listed else Role.LOST
    if member.lost:
        return Role.LOST
    if member.gone:
        return Role.LEFT
    if excluded:
        return Role.EXCLUDED
    if member.unhealthy:
        return Role.UNHEALTHY
    if member.register is None:
        return Role.UNREGISTERED
    return Role.ACTIVE if active else Role.STANDBY


def _entry(role: Role, member: Member | None, draining: bool, excluded: bool) -> NodeStatus:
    if member is None or member.register is None:
        return NodeStatus(role, "", "", "", None, True, 0, 0, False, draining, "excluded by a rule" if excluded else "")
    health = "; ".join(text for text in (member.problem, "excluded by a rule" if excluded else "") if text)
    restarts = max(0, member.incarnation - 1)
    domain = member.node.domain_id
    return NodeStatus(role, "", "", domain, None, False, restarts, member.times_lost, member.running, draining, health)


def _filled(
    entry: NodeStatus, ranks: list[int], group_ranks: list[int], ages: list[float], silent: float
) -> NodeStatus:
    return NodeStatus(
        entry.role,
        fold(ranks),
        fold(group_ranks),
        entry.domain,
        round(max(ages), 3) if ages else None,
        not ages or max(ages) >= silent,
        entry.restarts,
        entry.losses,
        entry.running,
        entry.draining,
        entry.health,
    )


def _cycle(cycles: Cycles, epoch: float) -> CycleStatus | None:
    if cycles.cycle is None:
        return None
    started = None if cycles.started is None else cycles.started + epoch
    return CycleStatus(str(cycles.cycle), cycles.cycle.n, started, len(cycles.group))


def _budgets(cycles: Cycles, wall: float) -> tuple[BudgetStatus, ...]:
    """Of the rules that restart; the others end the job or change nothing."""
    rules = cycles.job.settings.rules
    return tuple(
        BudgetStatus(
            rule=f"{rule.where} (rule {index + 1})",
            match=_match(rule.match),
            action=rule.response.value,
            used=cycles.ledger.count(index, rule.budget, wall),
            max=rule.budget.max,
            window=rule.budget.window,
        )
        for index, rule in enumerate(rules)
        if rule.response in (Response.RESTART, Response.REPLACE_NODE)
    )


def _match(match: Match) -> str:
    """As short as it can be told; "any" for a rule for any failure."""
    told = [
        *(cause.value for cause in match.causes),
        *(f"exit code {code}" for code in match.exit_codes),
        *match.signals,
        *match.exceptions,
        *([f"log {match.log}"] if match.log else []),
        *([f"node {','.join(match.nodes)}"] if match.nodes else []),
        *([f"check {match.check}"] if match.check else []),
    ]
    return ", ".join(told) or "any"


def _decision(cycles: Cycles, epoch: float) -> DecisionStatus | None:
    told = cycles.told
    if told is None:
        return None
    cycle = None if told.cycle is None else str(told.cycle)
    return DecisionStatus(told.what, told.reason, told.rule, cycle, told.at + epoch)


def _verdict(machine: CoordinatorMachine) -> VerdictStatus | None:
    verdict, final = machine.verdict, machine.verdict is not None
    verdict = verdict or machine.proposal
    if verdict is None:
        return None
    return VerdictStatus(verdict.outcome.value, verdict.reason, verdict.exit_code, verdict.again.value, final)


@lru_cache(maxsize=4)
def _job_name(policy: str) -> str:
    """The configuration's `name`, which the job carries as JSON."""
    try:
        name = json.loads(policy).get("name", "")
    except (ValueError, AttributeError):
        return ""
    return name if isinstance(name, str) else ""

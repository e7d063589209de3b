"""Makes the snapshot (run_folder.snapshot) of a coordinator's machine, and determines the role of a node."""

from __future__ import annotations

from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.coordinator.cycles import Cycles
from ft_supervisor.core.protocol.coordinator_facts import CycleFailed, Decided
from ft_supervisor.core.protocol.model import JobPhase, job_name
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.core.protocol.settings import Match, OnExhausted, Response
from ft_supervisor.core.quorum.members import Member
from ft_supervisor.core.quorum.roster import candidates, survivable
from ft_supervisor.process.line_values import rule_of
from ft_supervisor.process.log_lines import GIVES_UP, render
from ft_supervisor.run_folder.snapshot import (
    EVERY,
    VERSION,
    BudgetStatus,
    CoordinatorStatus,
    CycleStatus,
    DecisionStatus,
    NodeRole,
    NodeStatus,
    Snapshot,
    StepStatus,
    VerdictStatus,
    WaitStatus,
)


def snapshot(machine: CoordinatorMachine, now: float, wall: float) -> Snapshot:
    """Return the snapshot of the machine, which is only read. `now`: seconds of the machine's clock; `wall`: seconds
    since the epoch."""
    job, cycles = machine.job, machine.state.cycles
    nodes = _nodes(machine, now)
    here = sum(entry.count for entry in nodes if entry.role not in (NodeRole.LOST, NodeRole.LEFT))
    fit = sum(
        entry.count for entry in nodes if entry.role in (NodeRole.ACTIVE, NodeRole.STANDBY, NodeRole.UNREGISTERED)
    )
    members = len(parse_ranks(machine.state.leadership.roster.members))
    keepers = [rank for rank in candidates(job, machine.state.leadership.roster) if _here(machine.members.get(rank))]
    return Snapshot(
        version=VERSION,
        run_id=job.run_id,
        job=job_name(job.policy),
        time=wall,
        interval=max(EVERY, job.timeouts.heartbeat),
        coordinator=CoordinatorStatus(
            machine.node.name, machine.node.infra_rank, machine.term, machine.term is not None, machine.state.majority
        ),
        phase=machine.state.phase,
        wanted=job.active,
        cycle=_cycle(cycles, wall - now),
        nodes=nodes,
        names=job.nodes,
        candidates=format_ranks(keepers),
        members=members,
        spares=_spares(nodes, 0 if cycles.group else job.active),
        survives=survivable(members, min(here, members), len(keepers), fit - _least(cycles)),
        budgets=_budgets(cycles, wall),
        ends_in=None
        if machine.state.interruptions.end_at is None
        else max(0.0, machine.state.interruptions.end_at - now),
        slurm_away=machine.state.interruptions.away,
        decision=_decision(machine, wall - now),
        verdict=_verdict(machine),
        waits=_waits(machine, now),
        lost_after=job.timeouts.node_lost,
        per_node=job.per_node,
        cost=machine.state.account.cost(now),
        step=_step(machine, wall - now),
    )


def spares(machine: CoordinatorMachine, now: float) -> int:
    """Return how many standbys could replace a node of this job. `now`: seconds of the machine's clock."""
    return _spares(_nodes(machine, now), 0 if machine.state.cycles.group else machine.job.active)


def _spares(nodes: tuple[NodeStatus, ...], needed: int) -> int:
    """Return how many standbys could replace a node. `needed`: those that a first cycle will make active."""
    waiting = sum(entry.count for entry in nodes if entry.role is NodeRole.STANDBY and not entry.draining)
    return max(0, waiting - needed)


def _step(machine: CoordinatorMachine, epoch: float) -> StepStatus | None:
    if machine.state.step is None:
        return None
    step, at = machine.state.step
    return StepStatus(step, at + epoch)


def _waits(machine: CoordinatorMachine, now: float) -> WaitStatus | None:
    missing = machine.state.joining.missing(now) if machine.state.phase is JobPhase.JOINING else None
    return None if missing is None else WaitStatus(missing.nodes, missing.enough, missing.left)


def _here(member: Member | None) -> bool:
    return member is not None and member.here


def _least(cycles: Cycles) -> int:
    """Return the number of nodes that the job needs to go on."""
    shrinks = cycles.job.settings.placement.on_exhausted in (OnExhausted.SHRINK, OnExhausted.WAIT)
    return cycles.selection.least if shrinks or not cycles.group else max(cycles.selection.least, len(cycles.group))


def _nodes(machine: CoordinatorMachine, now: float) -> tuple[NodeStatus, ...]:
    """Return the nodes, equal ones in one entry; in one pass, as there may be ten thousand."""
    cycles, members = machine.state.cycles, machine.members
    listed = frozenset(parse_ranks(machine.state.leadership.roster.members))
    group = dict(zip(cycles.group, range(len(cycles.group)), strict=True))
    excluded, draining = cycles.selection.excluded, cycles.selection.draining
    silent = machine.job.timeouts.coordinator
    same: dict[tuple[object, ...], tuple[NodeStatus, list[int], list[int], list[float]]] = {}
    for rank in range(len(machine.job.nodes)):
        member, group_rank = members.get(rank), group.get(rank)
        role = role_of(member, active=group_rank is not None, excluded=rank in excluded, listed=rank in listed)
        if member is None or member.register is None:
            age = None if member is None else max(0.0, now - member.heard)  # heard: when it was expected first
            whole = None if age is None else int(age)
            key: tuple[object, ...] = (role, group_rank is None, rank in draining, rank in excluded, whole)
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


def role_of(member: Member | None, *, active: bool, excluded: bool, listed: bool) -> NodeRole:
    """Return the role of a node. `active`: it is in the present cycle; `excluded`: a rule has excluded it; `listed`:
    the list of members contains it."""
    if member is None:
        return NodeRole.UNREGISTERED if listed else NodeRole.LOST
    if member.lost:
        return NodeRole.LOST
    if member.gone:
        return NodeRole.LEFT
    if excluded:
        return NodeRole.EXCLUDED
    if member.problem is not None:
        return NodeRole.UNHEALTHY
    if member.register is None:
        return NodeRole.UNREGISTERED
    return NodeRole.ACTIVE if active else NodeRole.STANDBY


def _entry(role: NodeRole, member: Member | None, draining: bool, excluded: bool) -> NodeStatus:
    if member is None or member.register is None:
        return NodeStatus(role, "", "", "", None, True, 0, 0, False, draining, "excluded by a rule" if excluded else "")
    problem = "" if member.problem is None else member.problem.reason
    health = "; ".join(text for text in (problem, "excluded by a rule" if excluded else "") if text)
    restarts = max(0, member.incarnation - 1)
    domain = member.node.domain_id
    return NodeStatus(role, "", "", domain, None, False, restarts, member.times_lost, member.running, draining, health)


def _filled(
    entry: NodeStatus, ranks: list[int], group_ranks: list[int], ages: list[float], silent: float
) -> NodeStatus:
    return NodeStatus(
        entry.role,
        format_ranks(ranks),
        format_ranks(group_ranks),
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
    started = None if cycles.current.started is None else cycles.current.started + epoch
    return CycleStatus(str(cycles.cycle), cycles.cycle.n, started, len(cycles.group))


def _budgets(cycles: Cycles, wall: float) -> tuple[BudgetStatus, ...]:
    """Return the budgets of the rules that restart; the other rules end the job or change nothing."""
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
    """Return the rule's match in short; "any" if it matches all failures."""
    parts = [
        *(cause.value for cause in match.causes),
        *(f"exit code {code}" for code in match.exit_codes),
        *match.signals,
        *match.exceptions,
        *([f"log {match.log}"] if match.log else []),
        *([f"node {','.join(match.nodes)}"] if match.nodes else []),
        *([f"check {match.check}"] if match.check else []),
        *([f"culprit {match.culprit}"] if match.culprit else []),
    ]
    return ", ".join(parts) or "any"


def _decision(machine: CoordinatorMachine, epoch: float) -> DecisionStatus | None:
    cycles, last = machine.state.cycles, machine.state.cycles.announcements.last
    if last is None:
        return None
    end = machine.verdict or machine.state.commit.proposal
    if end is not None and isinstance(last.fact, Decided) and not last.fact.gives_up:  # its cycle never came
        cycle = None if last.fact.cycle is None else str(last.fact.cycle)
        return DecisionStatus(GIVES_UP, end.reason, None, cycle, machine.state.commit.began + epoch)
    leads_to = last.decided or last.fact
    decided = leads_to if isinstance(leads_to, Decided) else None
    rule = rule_of(decided, cycles.job) if decided is not None else None
    how, why = (decided.how, decided.why) if decided is not None else (None, None)
    cycle = None if last.fact.cycle is None else str(last.fact.cycle)
    what = render(leads_to, cycles.job).event
    at, rung = last.at + epoch, (None if how is None else how.value, None if why is None else why.value)
    cause = leads_to.cause if isinstance(leads_to, CycleFailed | Decided) else None
    return DecisionStatus(what, last.fact.reason, rule, cycle, at, *rung, None if cause is None else cause.value)


def _verdict(machine: CoordinatorMachine) -> VerdictStatus | None:
    verdict, final = machine.verdict, machine.verdict is not None
    verdict = verdict or machine.state.commit.proposal
    if verdict is None:
        return None
    return VerdictStatus(verdict.outcome.value, verdict.reason, verdict.exit_code, verdict.again.value, final)

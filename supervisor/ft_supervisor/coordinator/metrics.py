"""Computes the values of the metrics from the events, actions and state of the coordinator's machine.

Pure, and only reads the machine. Call `saw` after each step of the machine, in the thread that feeds it. `samples`
returns immutable values, which any other thread may use. All times are seconds of the machine's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ft_supervisor.coordinator import metric_families as names
from ft_supervisor.coordinator.metric_families import Buckets, Family, Sample
from ft_supervisor.coordinator.snapshot_of import role_of
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction, Fact, Mail, Pulse
from ft_supervisor.core.protocol.coordinator_facts import (
    CycleFailed,
    CycleStarted,
    Decided,
    FailuresHeard,
    HangExplained,
    NodeLost,
    NodePromoted,
    TookCharge,
)
from ft_supervisor.core.protocol.cost import Part
from ft_supervisor.core.protocol.events import CoordinatorEvent, Heard, Received
from ft_supervisor.core.protocol.messages import HangNoticed, Register, Run, WorkersFailed, WorkersStopped
from ft_supervisor.core.protocol.model import Cycle, Failure, job_name
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.settings import Cause, Response
from ft_supervisor.run_folder.snapshot import NodeRole


class CoordinatorMetrics:
    """The metrics of one coordinator process. `version`: that of ft-supervisor; `user`: the job's."""

    def __init__(self, machine: CoordinatorMachine, version: str, user: str = "") -> None:
        self._machine = machine
        self._version = version
        self._whose = (job_name(machine.job.policy), user)
        self._counts: Counter[tuple[Family, str]] = Counter()
        self._times = {(names.DETECTION, cause): Buckets() for cause in names.DETECTION.values}
        self._times |= {(names.DECISION, ""): Buckets(), (names.RESTART, ""): Buckets()}
        self._round = 0
        self._cause = names.OTHER
        self._failed: float | None = None
        self._decided: float | None = None
        self._waits_for: set[int] = set()
        self._stopped: dict[int, Cycle] = {}
        self._run_at = 0
        self._hung: tuple[Failure, ...] = ()

    # -- events

    def saw(self, event: CoordinatorEvent, actions: Sequence[CoordinatorAction], now: float) -> None:
        """Count what follows from `event`, which the machine received at `now`, and from the `actions` that it
        returned."""
        failures = self._noticed(_failures(event), event, actions)
        silent: float | None = None
        for action in actions:
            if isinstance(action, Pulse):
                self._round = action.round
            elif isinstance(action, Announce):
                if isinstance(action.fact, NodeLost):
                    silent = now - action.fact.heard
                elif isinstance(action.fact, CycleFailed):
                    self._cycle_failed(failures, silent, now)
                self._take(action.fact, actions, now)
        self._count_failures(event, failures, actions)
        if isinstance(event, Received) and isinstance(event.message, WorkersStopped):
            self._count_parked(event.message)
        if isinstance(event, Heard) and self._waits_for:
            self._heard(event, now)

    def _noticed(
        self, failures: Sequence[Failure], event: CoordinatorEvent, actions: Sequence[CoordinatorAction]
    ) -> Sequence[Failure]:
        """Return these failures, or those that a round of evidence has begun with, if it ends now."""
        if isinstance(event, Received) and isinstance(event.message, HangNoticed):
            self._hung = event.message.failures
        explained = any(isinstance(action, Announce) and isinstance(action.fact, HangExplained) for action in actions)
        return failures or (self._hung if explained else ())

    def _take(self, fact: Fact, actions: Sequence[CoordinatorAction], now: float) -> None:
        match fact:
            case Decided(gives_up=False, cause=cause, how=how):
                if how is not None:
                    self._counts[names.RUNGS, how.value] += 1
                self._cause = names.OTHER if cause is None else cause.value
                self._decided = now
                if self._failed is not None:
                    self._time(names.DECISION, "", now - self._failed)
            case CycleStarted():
                self._started(actions)
            case NodePromoted():
                self._counts[names.PROMOTIONS, ""] += 1
            case NodeLost():
                self._counts[names.NODES_LOST, ""] += 1
            case TookCharge(takeover=takeover):
                self._counts[names.TAKEOVERS, ""] += takeover
                self._failed, self._decided, self._waits_for = None, None, set()

    def _cycle_failed(self, failures: Sequence[Failure], silent: float | None, now: float) -> None:
        self._failed, self._decided, self._waits_for = now, None, set()
        found = self._detection(failures, silent, now)
        if found is not None:
            self._time(names.DETECTION, *found)

    def _detection(self, failures: Sequence[Failure], silent: float | None, now: float) -> tuple[str, float] | None:
        """Return the failure's cause and the seconds until it was known here; None if that is unknown."""
        if silent is not None:
            return Cause.NODE_LOST.value, silent
        for failure in failures:
            late = self._machine.state.wall(now) - failure.time
            # A node that is silent for longer is no member any more, so a longer time comes from different clocks.
            if failure.cause.value in names.DETECTION.values and late < self._machine.job.timeouts.takeover:
                return failure.cause.value, max(0.0, late)
        return None

    def _count_failures(
        self, event: CoordinatorEvent, failures: Sequence[Failure], actions: Sequence[CoordinatorAction]
    ) -> None:
        """Count the failures, once each: a Register may repeat a failure, and only a new one ends a cycle."""
        reported = isinstance(event, Received) and isinstance(event.message, WorkersFailed)
        kind = FailuresHeard if reported else CycleFailed
        if failures and any(isinstance(action, Announce) and isinstance(action.fact, kind) for action in actions):
            for failure in failures:
                self._counts[names.FAILURES, failure.cause.value] += 1

    def _count_parked(self, stopped: WorkersStopped) -> None:
        """Count the parked workers of a node and cycle, once: a node repeats its report where it is asked again."""
        if self._stopped.get(stopped.infra_rank) != stopped.cycle:
            self._stopped[stopped.infra_rank] = stopped.cycle
            self._counts[names.PARKED, ""] += stopped.parked

    def _started(self, actions: Sequence[CoordinatorAction]) -> None:
        self._counts[names.CYCLES, ""] += 1
        self._hung = ()
        if self._failed is not None:
            self._counts[names.RESTARTS, self._cause] += 1
        runs = {each.infra_rank for each in actions if isinstance(each, Mail) and isinstance(each.message, Run)}
        self._waits_for, self._run_at = runs, self._round

    def _heard(self, heard: Heard, now: float) -> None:
        """Take the nodes off the waiting list that have read a round newer than their Run: they live after it."""
        self._waits_for.difference_update(rank for rank, round_ in heard.echoes if round_ > self._run_at)
        if not self._waits_for:
            if self._decided is not None:
                self._time(names.RESTART, "", now - self._decided)
            self._failed = self._decided = None

    def _time(self, family: Family, label: str, seconds: float) -> None:
        self._times[family, label] = self._times[family, label].add(seconds)

    # -- samples

    def samples(self, now: float) -> tuple[Sample, ...]:
        """Return all samples, as of now."""
        return (*self._standing(now), *self._totals())

    def _standing(self, now: float) -> Iterator[Sample]:
        machine = self._machine
        leads, term = machine.state.majority, machine.term
        shown_term = str(term) if leads and term is not None else ""
        yield Sample(names.INFO, (self._version, machine.node.name, shown_term, *self._whose), 1)
        yield Sample(names.IN_CHARGE, (), float(leads))
        if term is None or not (leads or machine.cycle is None):  # it is cut off, and its state is old
            return
        yield from (Sample(names.PHASE, (phase,), float(phase == machine.state.phase)) for phase in names.PHASES)
        yield from self._nodes(now)
        yield from self._account(now)
        if machine.cycle is not None:
            yield Sample(names.CYCLE, (), machine.cycle.n)
        for index, rule in enumerate(machine.job.settings.rules):
            if rule.response not in (Response.FAIL, Response.STOP_FOR_REQUEUE):  # these answer once
                used = machine.state.cycles.ledger.count(index, rule.budget, machine.state.wall(now))
                yield Sample(names.BUDGET, (str(index + 1),), max(0, rule.budget.max - used))
        if machine.state.interruptions.end_at is not None:
            yield Sample(names.TIME_LIMIT, (), machine.state.wall(machine.state.interruptions.end_at))

    def _nodes(self, now: float) -> Iterator[Sample]:
        """Yield the samples about nodes, in one pass: there may be ten thousand."""
        machine = self._machine
        cycles, members = machine.state.cycles, machine.members
        group, listed, selection = (
            set(cycles.group),
            set(parse_ranks(machine.state.leadership.roster.members)),
            cycles.selection,
        )
        roles, ages, spares = Counter[NodeRole](), list[float](), 0
        problems: list[tuple[str, str]] = []
        for rank in range(len(machine.job.nodes)):
            member = members.get(rank)
            role = role_of(member, active=rank in group, excluded=rank in selection.excluded, listed=rank in listed)
            roles[role] += 1
            spares += role is NodeRole.STANDBY and rank not in selection.draining
            age = max(0.0, now - member.heard) if member is not None and member.registered else None
            if age is not None:
                ages.append(age)
            if state := _problem(role, age, machine.job.timeouts.coordinator):
                problems.append((machine.job.nodes[rank], state))
        yield from (Sample(names.NODES, (role.value,), roles[role]) for role in NodeRole)
        yield from (Sample(names.NODE_PROBLEM, each, 1) for each in problems[: names.MOST_PROBLEMS])
        yield Sample(names.SPARES, (), max(0, spares - (0 if group else machine.job.active)))
        ages.sort()
        if ages:
            for percentile in names.PERCENTILES:
                age = ages[round(percentile / 100 * (len(ages) - 1))]
                yield Sample(names.HEARTBEAT_AGE, (str(percentile),), age)

    def _account(self, now: float) -> Iterator[Sample]:
        cost = self._machine.state.account.cost(now)
        if cost.ratio is not None:
            yield Sample(names.RATIO, (), cost.ratio)
        yield from (Sample(names.TIME, (part.value,), cost.part(part)) for part in Part)

    def _totals(self) -> Iterator[Sample]:
        for family in (names.CYCLES, names.PARKED, names.NODES_LOST, names.PROMOTIONS, names.TAKEOVERS):
            yield Sample(family, (), self._counts[family, ""])
        for family in (names.RESTARTS, names.RUNGS, names.FAILURES):
            yield from (Sample(family, (cause,), self._counts[family, cause]) for cause in family.values)
        for (family, label), buckets in self._times.items():
            yield Sample(family, (label,) if label else (), buckets)


def _failures(event: CoordinatorEvent) -> tuple[Failure, ...]:
    """Return the failures that the event reports."""
    if not isinstance(event, Received):
        return ()
    match event.message:
        case WorkersFailed(failures=failures):
            return failures
        case Register(memory=memory):
            return memory.failures[:1]
        case _:
            return ()


def _problem(role: NodeRole, age: float | None, silent: float) -> str:
    """Return the problem of a node that was heard `age` seconds ago, "" for none."""
    if role in (NodeRole.LOST, NodeRole.EXCLUDED, NodeRole.UNHEALTHY):
        return role.value
    return "silent" if age is not None and age >= silent else ""

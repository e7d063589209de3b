"""Renders the log line of each fact. Only here do facts become `event=NAME key=value`.

People grep for these names and read these fields: they stay. docs/reference/log-events.md is made from FORMS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ft_supervisor.core.protocol import agent_facts as agent
from ft_supervisor.core.protocol import coordinator_facts as coordinator
from ft_supervisor.core.protocol import daemon_facts as daemon
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.settings import Response
from ft_supervisor.process import line_values

GIVES_UP = "gives_up"
_QUIET = tuple(
    state.value for state in (AgentState.STANDBY, AgentState.CHECKING, AgentState.STOPPING, AgentState.SUCCEEDED)
)
"""The events of an AgentBecame."""
_DECISIONS = (Response.RESTART.value, Response.REPLACE_NODE.value, GIVES_UP)
"""The events of a decision; the other responses always end the job."""

SAME = None
"""Marks a field of the line that is the fact's field of that name."""

AnyFact = TypeVar("AnyFact")


@dataclass(frozen=True)
class Line:
    """One log line: an event's name, its fields and its level. Fields that are None are left out."""

    event: str
    fields: tuple[tuple[str, object], ...] = ()
    level: str = "info"


def make_line(event: str, level: str = "info", /, **fields: object) -> Line:
    """Return a Line from keyword arguments."""
    return Line(event, tuple(fields.items()), level)


@dataclass(frozen=True)
class Form:
    """How facts of one kind are written. `process` announces them. `events`, `levels`: all possible values, of which
    `event` and `level` choose one."""

    process: str
    events: tuple[str, ...]
    levels: tuple[str, ...]
    event: Callable[[Any], str]
    level: Callable[[Any], str]
    fields: tuple[tuple[str, Callable[[Any, Job], object]], ...]


def render(fact: Fact, job: Job) -> Line:
    """Return the line of a fact of this job. Raises KeyError for a fact without a form."""
    form = FORMS[type(fact)]
    values = ((name, value(fact, job)) for name, value in form.fields)
    return Line(form.event(fact), tuple(each for each in values if each[1] is not None), form.level(fact))


def _form(
    kind: type[AnyFact],
    event: str | tuple[tuple[str, ...], Callable[[AnyFact], str]],
    level: str | tuple[tuple[str, ...], Callable[[AnyFact], str]] = "info",
    /,
    **how: Callable[[AnyFact, Job], object] | None,
) -> tuple[type, Form]:
    """Return a kind of fact with its form. `event` and `level`: a constant, or all possible values with the function
    that chooses one. `how`: the line's fields in order; SAME for a field that the fact has itself."""
    events, choose_event = ((event,), lambda _: event) if isinstance(event, str) else event
    levels, choose_level = ((level,), lambda _: level) if isinstance(level, str) else level
    process = kind.__module__.rpartition(".")[2].removesuffix("_facts")
    values = tuple((name, value if value is not None else _field(kind, name)) for name, value in how.items())
    return kind, Form(process, events, levels, choose_event, choose_level, values)


def _field(kind: type, name: str) -> Callable[[Any, Job], object]:
    if name not in {field.name for field in fields(kind)}:
        raise TypeError(f"{kind.__name__} has no field {name}")
    return lambda fact, _: getattr(fact, name)


def _if_any(number: float) -> float | None:
    return number or None


_AGENT = (
    _form(agent.CoordinatorFound, "connected", "debug", candidate=lambda fact, job: job.nodes[fact.candidate]),
    _form(agent.ConnectionLost, "disconnected", "debug", reason=SAME),
    _form(agent.TermPromised, "promised", "debug", term=SAME),
    _form(
        agent.MailDropped,
        "mail_dropped",
        "warning",
        message=SAME,
        term=SAME,
        reason=SAME,
        more=lambda fact, _: _if_any(fact.more),
    ),
    _form(
        agent.RunRefused,
        "mail_dropped",
        "warning",
        message=lambda *_: "Run",
        cycle=SAME,
        reason=lambda *_: "no lease to run it",
    ),
    _form(
        agent.RunDropped,
        "mail_dropped",
        "warning",
        message=lambda *_: "Run",
        cycle=SAME,
        reason=lambda fact, _: f"workers of {fact.running} are not gone",
        more=lambda fact, _: _if_any(fact.more),
    ),
    _form(agent.AgentUnhealthy, "unhealthy", "warning", reason=lambda fact, _: fact.problem.reason),
    _form(agent.FailureIgnored, "failure_ignored", "warning", failure=line_values.failure),
    _form(
        agent.WorkerFailed,
        "worker_failed",
        "debug",
        cycle=SAME,
        failure=line_values.failure,
        error_file=lambda fact, _: fact.failure.error_file,
    ),
    _form(agent.WorkerHangs, "worker_hangs", "debug", cycle=SAME, failure=line_values.failure),
    _form(agent.TerminationPassedOn, "terminated", "debug", reason=SAME),
    _form(agent.ConfigDiffers, "policy_differs", "warning", reason=SAME),
    _form(agent.Fenced, "fenced", "warning", reason=lambda fact, _: f"no lease for {fact.seconds:g} s"),
    _form(agent.AgentBecame, (_QUIET, lambda fact: fact.state.value), "debug", cycle=SAME),
    _form(agent.AgentActive, "active", "debug", cycle=SAME, group_rank=SAME, group_world_size=SAME),
    _form(agent.WorkersMade, "workers_made", "debug", cycle=SAME, in_process=SAME, warm=SAME, cold=SAME),
    _form(agent.AgentClosing, "closing", "debug", reason=SAME),
)
_LEADERSHIP = (
    _form(coordinator.Preparing, "preparing", term=SAME, nodes=SAME),
    _form(coordinator.TookCharge, "in_charge", term=SAME, promises=SAME, takeover=lambda fact, _: fact.takeover),
    _form(coordinator.SteppedDown, "stepped_down", "warning", term=SAME, reason=SAME),
    _form(coordinator.MajorityLost, "majority_lost", "warning", members=SAME),
    _form(coordinator.MajorityBack, "majority", term=SAME, members=SAME),
    _form(coordinator.RosterChanged, "members", number=SAME, members=SAME, former=lambda fact, _: fact.former or None),
    _form(coordinator.TickLate, "tick_late", "warning", seconds=lambda fact, _: round(fact.seconds, 3)),
    _form(
        coordinator.MessageDropped,
        "message_dropped",
        "warning",
        message=SAME,
        node=lambda fact, _: fact.infra_rank,
        term=SAME,
        reason=SAME,
        more=lambda fact, _: _if_any(fact.more),
    ),
)
_NODES = (
    _form(
        coordinator.NodesMissing,
        "nodes_missing",
        (("info", "warning"), lambda fact: "info" if fact.enough else "warning"),
        reason=lambda fact, job: f"waiting for {line_values.missing(fact, job)}",
    ),
    _form(
        coordinator.NodeRegistered,
        "registered",
        "debug",
        node=lambda fact, job: job.nodes[fact.infra_rank],
        infra_rank=SAME,
        incarnation=SAME,
    ),
    _form(
        coordinator.NodeLost,
        "node_lost",
        "warning",
        node=lambda fact, job: job.nodes[fact.infra_rank],
        reason=lambda fact, job: coordinator.why_lost(job.nodes[fact.infra_rank], fact.bound),
    ),
    _form(
        coordinator.NodeUnhealthy,
        "unhealthy",
        "warning",
        node=lambda fact, job: job.nodes[fact.infra_rank],
        reason=lambda fact, _: fact.problem.reason,
    ),
    _form(
        coordinator.NodesSuspected,
        "suspect",
        "warning",
        names=lambda fact, job: job.names_of(fact.nodes),
        reason=lambda fact, _: f"no answer within {fact.seconds:g} s",
    ),
    _form(
        coordinator.SlurmNews,
        "slurm",
        (("info", "warning"), lambda fact: "warning" if fact.problem else "info"),
        reason=SAME,
    ),
)
_CYCLES = (
    _form(
        coordinator.CycleStarted,
        "cycle_started",
        cycle=SAME,
        nodes=lambda fact, _: len(fact.group),
        new=line_values.new_nodes,
        reason=lambda fact, _: fact.reason,
    ),
    _form(
        coordinator.NodePromoted,
        "promoted",
        node=lambda fact, job: job.nodes[fact.infra_rank],
        instead_of=lambda fact, job: job.nodes[fact.instead_of],
        group_rank=SAME,
    ),
    _form(
        coordinator.FailuresHeard,
        "failures_heard",
        "debug",
        node=lambda fact, job: job.nodes[fact.infra_rank],
        cycle=SAME,
        failures=SAME,
    ),
    _form(
        coordinator.HangHeard,
        "hang_heard",
        "warning",
        node=lambda fact, job: job.nodes[fact.infra_rank],
        cycle=SAME,
        asked=lambda fact, _: fact.nodes,
    ),
    _form(
        coordinator.HangExplained,
        "hang_explained",
        "warning",
        cycle=SAME,
        reason=SAME,
        ground=lambda fact, _: fact.explanation.ground.value,
        culprits=lambda fact, _: fact.explanation.culprits or None,
        node=lambda fact, job: None if fact.infra_rank is None else job.nodes[fact.infra_rank],
        seconds=lambda fact, _: round(fact.seconds, 2),
        asked=SAME,
        silent=lambda fact, job: job.names_of(fact.silent) or None,
    ),
    _form(coordinator.CycleFailed, "cycle_failed", "warning", cycle=SAME, reason=SAME),
    _form(
        coordinator.Decided,
        (_DECISIONS, lambda fact: GIVES_UP if fact.gives_up else fact.response.value),
        "warning",
        cycle=SAME,
        reason=SAME,
        cause=line_values.cause,
        rule=line_values.rule_of,
        used=lambda fact, _: None if fact.rule is None else fact.used,
        budget=line_values.budget,
        replaced=lambda fact, job: job.names_of(fact.replaced) or None,
        pause=lambda fact, _: _if_any(round(fact.pause, 1)),
        how=lambda fact, _: None if fact.how is None else fact.how.value,
        why=lambda fact, _: None if fact.why is None else fact.why.value,
    ),
    _form(
        coordinator.FirstFailure,
        "first_failure",
        "warning",
        cycle=SAME,
        rank=SAME,
        node=lambda fact, job: job.nodes[fact.infra_rank],
        failure=line_values.failure,
        log=line_values.log_file,
        last_lines=lambda fact, _: fact.failure.last_lines or None,
    ),
    _form(
        coordinator.FailuresExplained,
        "failures_explained",
        "warning",
        cycle=SAME,
        node=lambda fact, job: job.nodes[fact.infra_rank],
        failures=lambda fact, _: fact.workers,
        reason=line_values.explained,
    ),
    _form(
        coordinator.TooFewNodes,
        "too_few_nodes",
        "warning",
        reason=SAME,
        on_exhausted=lambda fact, _: fact.on_exhausted.value,
    ),
)


_VERDICT = (
    _form(coordinator.VerdictProposed, "proposed", outcome=line_values.outcome, reason=line_values.why),
    _form(coordinator.VerdictFileHangs, "file_hangs", "warning", what=lambda *_: "verdict file"),
    _form(
        coordinator.VerdictClosed,
        "verdict",
        outcome=line_values.outcome,
        code=lambda fact, _: fact.verdict.exit_code,
        reason=line_values.why,
    ),
)


_DAEMON = (
    _form(
        daemon.JobIntroduced,
        "job",
        nodes=lambda _, job: len(job.nodes),
        active=lambda _, job: job.active,
        spares=lambda _, job: len(job.nodes) - job.active,
        candidates=lambda fact, job: ",".join(job.nodes[rank] for rank in fact.candidates),
        survives=line_values.survives,
    ),
    _form(
        daemon.CheckChanged,
        "health",
        (("info", "warning"), lambda fact: "info" if fact.effect is None else "warning"),
        check=SAME,
        effect=SAME,
        reason=SAME,
    ),
    _form(daemon.AgentLost, "agent_lost", "warning", status=SAME, incarnation=SAME, crashes=SAME),
    _form(
        daemon.AgentSilent,
        "agent_silent",
        "warning",
        seconds=lambda fact, _: round(fact.seconds, 1),
        incarnation=SAME,
    ),
    _form(daemon.CoordinatorListens, "coordinator_listens", "debug", port=SAME),
    _form(daemon.CoordinatorLost, "coordinator_lost", "warning", status=SAME, crashes=SAME),
    _form(daemon.CoordinatorSilent, "coordinator_silent", "warning"),
    _form(daemon.DaemonSignalled, "signalled", "debug", name=SAME),
    _form(daemon.VerdictFound, "verdict_found", "debug", outcome=line_values.outcome, reason=line_values.why),
    _form(
        daemon.LastLookHangs,
        "file_failed",
        "warning",
        what=lambda *_: "reading the verdict's file",
        error=lambda fact, _: f"Hangs: reading the verdict's file: not done after {fact.seconds:g} s",
    ),
    _form(
        daemon.DaemonLeaves,
        "leaving",
        (("debug", "warning"), lambda fact: "debug" if fact.verdict else "warning"),
        code=SAME,
        verdict=lambda fact, _: fact.verdict.outcome.value if fact.verdict else None,
        reason=SAME,
    ),
    _form(daemon.DeputyStandsIn, "stands_in", job=lambda fact, _: fact.job_id, host=SAME, seconds=SAME),
    _form(daemon.BatchHostUnknown, "batch_host_unknown", job=lambda fact, _: fact.job_id, host=SAME, why=SAME),
)
FORMS: Mapping[type, Form] = dict((*_AGENT, *_LEADERSHIP, *_NODES, *_CYCLES, *_VERDICT, *_DAEMON))
"""The form of each kind of fact."""

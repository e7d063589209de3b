"""Values of log lines that take more than a field of their fact. For log_lines.py."""

from __future__ import annotations

from ft_supervisor.core.protocol import agent_facts as agent
from ft_supervisor.core.protocol import coordinator_facts as coordinator
from ft_supervisor.core.protocol import daemon_facts as daemon
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.worker_words import sentence
from ft_supervisor.core.words import count, waiting

_WithFailure = agent.WorkerFailed | agent.WorkerHangs | agent.FailureIgnored | coordinator.FirstFailure
_WithVerdict = coordinator.VerdictProposed | coordinator.VerdictClosed | daemon.VerdictFound


def new_nodes(fact: coordinator.CycleStarted, job: Job) -> str | None:
    """Return the names of the cycle's new nodes."""
    before = set(fact.former)
    return job.names_of([node for node in fact.group if node not in before]) or None


def failure(fact: _WithFailure, job: Job) -> str:
    """Return who failed, and what it said."""
    return sentence(fact.failure, job.nodes[fact.failure.infra_rank])


def rule_of(fact: coordinator.Decided, job: Job) -> str | None:
    """Return the rule that matched, as FILE:LINE (rule N)."""
    return None if fact.rule is None else f"{job.settings.rules[fact.rule].where} (rule {fact.rule + 1})"


def budget(fact: coordinator.Decided, job: Job) -> str | None:
    """Return how often the rule has answered, of how often it may."""
    return None if fact.rule is None else f"{fact.spent} of {job.settings.rules[fact.rule].budget.max}"


def explained(fact: coordinator.FailuresExplained, job: Job) -> str:
    """Return what the loss of a node has caused."""
    several = f"the {fact.workers} tracebacks above are consequences"
    what = several if fact.workers > 1 else "the traceback above is a consequence"
    return f"{job.nodes[fact.infra_rank]} was lost; {what}"


def cause(fact: coordinator.Decided, _: Job) -> str | None:
    """Return the cause, None if no rule could name it."""
    return None if fact.cause is None else fact.cause.value


def missing(fact: coordinator.NodesMissing, job: Job) -> str:
    """Return which nodes the job waits for."""
    names = [job.nodes[rank] for rank in parse_ranks(fact.nodes)]
    return waiting(names, len(job.nodes), fact.left, enough=fact.enough)


def log_file(fact: coordinator.FirstFailure, job: Job) -> str | None:
    """Return the path of the first failed worker's output."""
    return None if fact.cycle is None or fact.rank is None else job.log_file(fact.cycle, fact.rank)


def outcome(fact: _WithVerdict, _: Job) -> str:
    """Return the verdict's outcome."""
    return fact.verdict.outcome.value


def why(fact: _WithVerdict, _: Job) -> str:
    """Return the verdict's reason."""
    return fact.verdict.reason


def survives(fact: daemon.JobIntroduced, job: Job) -> str:
    """Return what the job survives, by the size of its list of members."""
    if not fact.losses:
        return "no loss: there is no spare" if len(job.nodes) == job.active else "no loss: a majority must remain"
    return f"the loss of any {count(fact.losses, 'node')} at the same moment"

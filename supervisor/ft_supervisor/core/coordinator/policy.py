"""Decides what a failure leads to: the first rule that matches, its budget, and one decision with its reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from zlib import crc32

from ft_supervisor.core.coordinator.current_cycle import CurrentCycle
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.messages import AgentGone
from ft_supervisor.core.protocol.model import (
    AGENT_RANK,
    Again,
    Ending,
    Failure,
    Job,
    Memory,
    Node,
    Outcome,
    Problem,
    Verdict,
)
from ft_supervisor.core.protocol.settings import Cause, Culprit, Match, Response, RestartMode, Rule, RungReason
from ft_supervisor.core.protocol.worker_words import sentence
from ft_supervisor.core.words import count

MayGo = Callable[[Collection[int]], bool]
"""Whether the nodes with these infra_ranks may be left out of the next cycle."""


@dataclass(frozen=True)
class Trouble:
    """Why a cycle cannot go on. `reason` is one line.

    `charged` False: it costs no restart of the rule for any failure. So it is for a takeover, growth, a node's first
    loss (spares bound how many nodes can be lost, but not how often one comes back), and a node that a check has taken
    out for good. Only a rule that names its cause or its check answers it. `growth`: nothing is wrong, the job can have
    more nodes. `culprit`: of a hang: the ranks that began it are known. Without an `infra_rank` no node is charged.
    `heard`: when a lost node was last heard, by the coordinator's own clock.
    """

    reason: str
    cause: Cause | None = None
    infra_rank: int | None = None
    failure: Failure | None = None
    check: str = ""
    charged: bool = True
    growth: bool = False
    culprit: bool = False
    heard: float | None = None

    @property
    def known(self) -> Culprit:
        """`culprit` as a rule has it."""
        return Culprit.KNOWN if self.culprit else Culprit.UNKNOWN


def trouble_of_failure(node: Node, failure: Failure) -> Trouble:
    """Return the trouble of a worker, or an agent, of this node that has failed."""
    of_agent = failure.local_rank == AGENT_RANK
    return Trouble(sentence(failure, node.name), failure.cause, node.infra_rank, failure, culprit=of_agent)


def trouble_of_check(node: Node, problem: Problem) -> Trouble:
    """Return the trouble of an active node whose health check has failed."""
    reason = f"{node.name}: {problem.reason}"
    return Trouble(reason, Cause.HEALTH, node.infra_rank, check=problem.check, charged=False)


def trouble_without_failure(node: Node, what: str, *, charged: bool) -> Trouble:
    """Return the trouble of an active node that does not run the cycle, and does not say why; `what` it does."""
    return Trouble(f"{node.name}: {what}", Cause.EXIT if charged else None, node.infra_rank, charged=charged)


def trouble_of_workers(node: Node, cycle: CurrentCycle, what: str) -> Trouble:
    """Return the trouble of an active node whose workers did that, and it is not known which of them, or why."""
    return Trouble(f"{cycle.workers_of(node)} {what}", Cause.EXIT, node.infra_rank)


def trouble_of_idle(node: Node, memory: Memory, cycle: CurrentCycle) -> Trouble:
    """Return the trouble of an active node that runs nothing, and whose workers of `cycle` have not succeeded."""
    if memory.unhealthy is not None:
        return trouble_of_check(node, memory.unhealthy)
    if memory.failures:
        return trouble_of_failure(node, memory.failures[0])
    if memory.newest == cycle.name:
        return trouble_of_workers(node, cycle, "disappeared")
    return trouble_without_failure(node, f"it never ran cycle {cycle.name}", charged=False)


def trouble_of_dead_agent(node: Node, message: AgentGone, cycle: CurrentCycle, *, runs: bool) -> Trouble | None:
    """Return the trouble of an active node whose agent has ended before its workers of `cycle` have succeeded.

    `runs`: nothing has ended the cycle yet. Else only an agent that failed itself is news: a failure of its workers was
    told before, or their peers were faster.
    """
    if not runs and not any(failure.local_rank == AGENT_RANK for failure in message.failures):
        return None
    if message.cycle != cycle.name:
        return trouble_without_failure(node, f"it never ran cycle {cycle.name}", charged=False)
    if message.failures:
        return trouble_of_failure(node, message.failures[0])
    return trouble_of_workers(node, cycle, "disappeared")


def trouble_of_given_up(job: Job, gone: Sequence[int]) -> Trouble:
    """Return the trouble of active nodes (their infra_ranks) that a former coordinator has given up."""
    reason = f"{job.names_of(gone)} was given up by the former coordinator"
    return Trouble(reason, Cause.NODE_LOST, gone[0], charged=False)


def trouble_of_drain(job: Job, leaving: Collection[int]) -> Trouble:
    """Return the trouble of active nodes (their infra_ranks) that Slurm is about to take away."""
    return Trouble(f"Slurm drains {job.names_of(sorted(leaving))}", Cause.DRAIN, min(leaving), charged=False)


def trouble_of_growth(size: int, larger: int) -> Trouble:
    """Return the trouble of a cycle of `size` nodes that is to make room for one of `larger`."""
    return Trouble(f"growing from {size} to {larger} nodes", charged=False, growth=True)


@dataclass(frozen=True)
class Decision:
    """`rule`: the index of the one that answers, None where none is needed. `ledger`: with this answer charged to it.
    `verdict` None: go on with a new cycle after `delay` seconds, without those of `replaced`. `how`, `why`, `spent`: as
    in coordinator_facts.Decided."""

    response: Response
    reason: str
    rule: int | None
    ledger: Ledger
    replaced: frozenset[int] = frozenset()
    delay: float = 0.0
    verdict: Verdict | None = None
    how: RestartMode | None = None
    why: RungReason | None = None
    spent: int = 0


def find(rules: Sequence[Rule], trouble: Trouble, name: str) -> int | None:
    """Return the index of the first rule that answers this trouble; `name` is its node's. None if no rule does."""
    for index, rule in enumerate(rules):
        named = trouble.cause in rule.match.causes or rule.match.check
        if _matches(rule.match, index, trouble, name) and (trouble.charged or named):
            return index
    return None


_NO_RULE = -1.5
"""Added to the number of rules: the weight of a trouble without a rule, between those of the last two rules."""


def weight(rules: Sequence[Rule], rule: int | None) -> float:
    """Return the weight of a trouble with this rule. Of several that end one cycle the one with the least weight
    decides.

    The weight is the rule's index: peers of a failed worker crash as well, so that several are reported, and the
    earliest rule is to answer. A trouble without a rule weighs a little less than one with the last rule, which is for
    any failure.
    """
    return len(rules) + _NO_RULE if rule is None else rule


def ignored(rules: Sequence[Rule], failure: Failure, name: str) -> bool:
    """Whether a rule says to ignore this failure: its node goes on as if nothing had failed."""
    rule = find(rules, Trouble("", failure.cause, failure.infra_rank, failure), name)
    return rule is not None and rules[rule].response is Response.IGNORE


def decide(
    rules: Sequence[Rule],
    ledger: Ledger,
    trouble: Trouble,
    rule: int | None,
    *,
    bad: Collection[int] = (),
    at: float,
    step: int | None = None,
    steps: bool = False,
    seed: str = "",
    may_go: MayGo = lambda _: True,
    restart: RestartMode = RestartMode.PROCESS,
    progressed: bool = False,
) -> Decision:
    """Return the decision by `rule`, which `find` has found.

    `bad`: nodes that other rules want replaced as well. `at`: seconds since the epoch by our clock. `step`: of the
    newest checkpoint, None if there is none that can be read; `steps`: whether the job has a step file, without which
    its progress is unknown. `seed` makes the jitter. `may_go`: whether nodes that fail too often may be replaced for
    that. `restart`: the job's workers.restart; `progressed`: whether a worker of the cycle has made progress.
    """
    replaced = frozenset(bad)
    moved = progressed or (step is not None and ledger.step is not None and step > ledger.step)
    if rule is None:
        how, why = _rung(None, None, ledger, moved, at) if restart is RestartMode.IN_PROCESS else (None, None)
        excluded = _exclude(ledger.advanced(step), replaced)
        return Decision(Response.RESTART, trouble.reason, None, excluded, replaced, how=how, why=why)
    chosen = rules[rule]
    reason = f"{chosen.reason}: {trouble.reason}" if chosen.reason else trouble.reason
    response = chosen.response
    if response is Response.IGNORE or (response is Response.REPLACE_NODE and trouble.infra_rank is None):
        response = Response.RESTART
    if response is Response.FAIL:
        verdict = Verdict(Outcome.FAILED, reason, Again.NEVER, Ending.RULE)
        return Decision(response, reason, rule, ledger, verdict=verdict)
    if response is Response.STOP_FOR_REQUEUE:
        verdict = Verdict(
            Outcome.INTERRUPTED, f"stopped for a requeue: {reason}", Again.REQUEUE, Ending.STOPPED_FOR_REQUEUE
        )
        return Decision(response, reason, rule, ledger, verdict=verdict)
    budget = chosen.budget
    if (spent := _spent(rule, chosen, ledger, at)) is not None:
        verdict = Verdict(Outcome.FAILED, f"{spent}: {reason}", ending=Ending.BUDGET_SPENT)
        return Decision(response, reason, rule, ledger, verdict=verdict, spent=budget.max)
    charged = ledger.charge(rule, budget, trouble.infra_rank, at)
    count_now = charged.count(rule, budget, at)
    charged = charged.progressed(step) if steps else charged
    if steps and budget.no_progress is not None and charged.stalled >= budget.no_progress:
        step_said = "" if charged.step is None else f" (step {charged.step})"
        spent = f"{count(charged.stalled, 'restart')} in a row without a newer checkpoint{step_said}"
        verdict = Verdict(Outcome.FAILED, f"{spent}: {reason}", ending=Ending.NO_PROGRESS)
        return Decision(response, reason, rule, charged, verdict=verdict, spent=count_now)
    if trouble.infra_rank is not None:
        too_often = budget.same_node is not None and charged.of_node(rule, trouble.infra_rank) > budget.same_node
        without = replaced | {trouble.infra_rank}
        if response is Response.REPLACE_NODE or (too_often and may_go(without)):
            response, replaced = Response.REPLACE_NODE, without
    delay = _delay(chosen, charged.in_a_row, f"{seed}/{charged.entries}")
    how, why = _rung(rule, chosen, charged, moved, at) if restart is RestartMode.IN_PROCESS else (None, None)
    if how is RestartMode.IN_PROCESS and budget.in_process is not None:
        charged = charged.charge_in_process(rule, budget.in_process, at)
    excluded = _exclude(charged, replaced)
    return Decision(response, reason, rule, excluded, replaced, delay, how=how, why=why, spent=count_now)


def _rung(
    index: int | None, rule: Rule | None, ledger: Ledger, moved: bool, at: float
) -> tuple[RestartMode, RungReason]:
    """Return how a job with workers.restart in_process makes its next workers, and why. The first reason that applies
    counts.

    `moved`: the cycle has made progress. Without progress the next cycle might fail in the same way, because of
    something that the processes have kept; and an abort within the first step can crash a process.
    """
    if rule is not None and rule.how is RestartMode.PROCESS:
        return RestartMode.PROCESS, RungReason.RULE
    if not moved:
        return RestartMode.PROCESS, RungReason.BEFORE_PROGRESS
    budget = None if rule is None else rule.budget.in_process
    if index is not None and budget is not None and ledger.count_in_process(index, budget, at) >= budget.max:
        return RestartMode.PROCESS, RungReason.BUDGET
    return RestartMode.IN_PROCESS, RungReason.ALLOWED


def _exclude(ledger: Ledger, nodes: frozenset[int]) -> Ledger:
    return ledger.exclude(nodes) if nodes else ledger


def _spent(index: int, rule: Rule, ledger: Ledger, at: float) -> str | None:
    most = rule.budget.max
    if ledger.count(index, rule.budget, at) < most:
        return None
    if most == 0:
        return "no restarts allowed"
    window = f" within {rule.budget.window:g} s" if rule.budget.window is not None else ""
    return f"{count(most, 'restart')} spent{window}"


def _delay(rule: Rule, in_a_row: int, seed: str) -> float:
    """Return the pause in seconds, which grows with the restarts in a row. The jitter is computed from `seed`: jobs
    differ, and a replay of one's journal does not."""
    backoff = rule.backoff
    delay = min(backoff.cap, backoff.first * 2.0 ** min(in_a_row - 1, 60))
    chance = crc32(seed.encode()) / 2**31 - 1.0
    return delay * (1.0 + backoff.jitter * chance)


def _matches(match: Match, index: int, trouble: Trouble, name: str) -> bool:
    failure = trouble.failure
    return (
        (not match.causes or trouble.cause in match.causes)
        and (not match.exit_codes or (failure is not None and failure.exit_code in match.exit_codes))
        and (not match.signals or (failure is not None and failure.signal in match.signals))
        and (not match.exceptions or (failure is not None and _is_one_of(failure.exception, match.exceptions)))
        and (not match.log or (failure is not None and index in failure.rules))
        and (not match.nodes or name in match.nodes)
        and (not match.check or match.check == trouble.check)
        and (match.culprit is None or (trouble.cause is Cause.HANG and match.culprit is trouble.known))
    )


def _is_one_of(exception: str, names: Sequence[str]) -> bool:
    """Whether it is one of these names, which may lack their module."""
    return bool(exception) and (exception in names or exception.rpartition(".")[2] in names)

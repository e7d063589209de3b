"""Builds a run's cycles, with the time that their failures cost. Pure. history.model defines each number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from ft_supervisor.core.protocol.cost import CLOCKS, CycleTimes, happened
from ft_supervisor.core.protocol.lost_peer import lost_a_peer
from ft_supervisor.core.protocol.model import Failure, Verdict
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.worker_words import sentence
from ft_supervisor.history.fact import FactKind, RunFact
from ft_supervisor.history.known import CycleFacts, collect, order
from ft_supervisor.history.model import CycleEnd, CycleStory, FirstFailedWorker, HangStory, Loss, LostNode, Made


def cycles(
    facts: Sequence[RunFact], names: Sequence[str], verdict: Verdict | None, per_node: int | None = None
) -> tuple[CycleStory, ...]:
    """Return all cycles, in order. `facts`: all journals', in order; `names`: the nodes' names by infra_rank;
    `per_node`: workers on each node, None if that is not known."""
    proposed = next((fact for fact in facts if fact.kind is FactKind.VERDICT_PROPOSED), None)
    found = collect(facts, verdict, proposed)
    trouble = [fact for fact in facts if fact.kind in (FactKind.NODE_LOST, FactKind.NODE_UNHEALTHY)]
    return tuple(
        _story(number, cycle, later, trouble, names, per_node, proposed)
        for (number, cycle), later in zip_longest(found.items(), list(found.values())[1:])
    )


def _story(
    number: str,
    cycle: CycleFacts,
    later: CycleFacts | None,
    trouble: Sequence[RunFact],
    names: Sequence[str],
    per_node: int | None,
    proposed: RunFact | None,
) -> CycleStory:
    term, n = order(number)
    failed, failures = cycle.ended is CycleEnd.FAILED, [_ranked(each, cycle, per_node) for each in cycle.in_order()]
    if not failures and cycle.first_failure is not None:  # no agent has reported the culprit of a hang as failed
        failures = [each for each in cycle.first_failure.failures if each.cause is Cause.HANG]
    reason = cycle.reason_fact.reason if cycle.reason_fact else ""
    if not cycle.reason_fact and failures:
        reason = sentence(failures[0], _name(names, failures[0].infra_rank))
    cause = _cause(cycle, failures) if failed else ""
    lost = _lost(cycle, trouble, names)
    worker = [] if cycle.first_failed is None else [cycle.first_failed]
    at = happened(worker, [each.at for each in lost], cycle.start, node_lost=cause == Cause.NODE_LOST)
    story = CycleStory(
        number=number,
        term=term,
        n=n,
        nodes=tuple(_name(names, node) for node in cycle.group),
        start=cycle.start,
        began=cycle.began.reason if cycle.began else "",
        choice=cycle.began.choice if cycle.began else "",
        workers_up=cycle.up,
        end=cycle.end,
        ended=cycle.ended,
        cause=cause,
        reason=reason if failed else "",
        rule=cycle.decided.rule if cycle.decided else "",
        response=cycle.decided.response if cycle.decided else "",
        budget=cycle.decided.budget if cycle.decided else None,
        failures=tuple(failures),
        lost=lost,
        how=cycle.decided.how if cycle.decided else "",
        why=cycle.decided.why if cycle.decided else "",
        made=_made(cycle),
        loss=_loss(cycle, later, at, proposed) if failed else None,
        times=_times(n, cycle, at if failed else None),
        hang=_hang(cycle, names) if failed and cause == Cause.HANG else None,
    )
    return _with_first(story, cycle.first_failure, names)


def _hang(cycle: CycleFacts, names: Sequence[str]) -> HangStory | None:
    """Return why the cycle hung. It may have ended for another hang, or another worker, than what was explained."""
    found = cycle.explained
    if found is None or found.explanation is None or cycle.failed is None or cycle.failed.reason != found.reason:
        return None
    return HangStory(found.reason, "" if found.node is None else _name(names, found.node), found.explanation)


def _made(cycle: CycleFacts) -> Made | None:
    if not cycle.made:
        return None
    in_process, warm, cold = map(sum, zip(*cycle.made.values(), strict=True))
    return Made(in_process, warm, cold, unknown_nodes=len(set(cycle.group) - cycle.made.keys()))


def _ranked(failure: Failure, cycle: CycleFacts, per_node: int | None) -> Failure:
    """Return the failure with its worker's rank, if that follows from the cycle's group. Some journals lack it."""
    known = failure.infra_rank in cycle.group and per_node is not None and failure.local_rank >= 0
    if failure.rank is not None or not known or per_node is None:
        return failure
    return replace(failure, rank=cycle.group.index(failure.infra_rank) * per_node + failure.local_rank)


def _name(names: Sequence[str], node: int) -> str:
    return names[node] if 0 <= node < len(names) else f"node {node}"


def _cause(cycle: CycleFacts, failures: Sequence[Failure]) -> str:
    """Return the cause that the coordinator has announced; where no journal has it, the cause of the first failure."""
    if cycle.reason_fact is None:
        return failures[0].cause.value if failures else "unknown"
    return cycle.reason_fact.cause or ("other" if cycle.decided else "unknown")


def _lost(cycle: CycleFacts, trouble: Sequence[RunFact], names: Sequence[str]) -> tuple[LostNode, ...]:
    """Return the nodes of the cycle that were lost between its failure and the decision."""
    if cycle.failed is None:
        return ()
    until = cycle.decided.at if cycle.decided else cycle.failed.at
    group = set(cycle.group)
    return tuple(
        LostNode(_name(names, fact.node), fact.at)
        for fact in trouble
        if fact.kind is FactKind.NODE_LOST and fact.node in group and cycle.failed.at <= (fact.noticed or 0.0) <= until
    )


# -- time lost


def _times(n: int, cycle: CycleFacts, happened_at: float | None) -> CycleTimes:
    """Return the cycle's moments for the account of the run's time."""
    decided = cycle.decided if cycle.decided and cycle.decided.response != "gives_up" else None
    return CycleTimes(
        first=n == 0,
        began=cycle.start,
        started=cycle.started if cycle.tells is None else cycle.signs.started,
        training=cycle.up,
        happened=happened_at,
        ended=cycle.end,
        failed=cycle.ended is CycleEnd.FAILED,
        stopped=cycle.all_over(),
        decided=decided.at if decided else None,
        saved=cycle.saved,
        step=cycle.step,
    )


def _loss(cycle: CycleFacts, later: CycleFacts | None, at: float | None, proposed: RunFact | None) -> Loss | None:
    if cycle.failed is None:
        return None if at is None else Loss(at, None, None, None, None, None, None, None)
    noticed = cycle.failed.at
    detection = None if at is None or at > noticed + CLOCKS else max(0.0, noticed - at)
    at = noticed - (detection or 0.0)
    settled = later.start if later else proposed.at if proposed else None
    over = cycle.all_over()
    if over is not None and settled is not None and over > settled:
        over = None  # the end of the job was decided before the last node had stopped
    stop = None if over is None else max(0.0, over - noticed)
    decision = None
    if settled is not None and (over is not None or later is None):
        decision = max(0.0, settled - max(noticed, over or noticed))
    if later is None:
        return Loss(at, detection, stop, decision, None, None, None, None)
    rendezvous = _between(later.began.at if later.began else None, later.started)
    worker_start = None if later.beating is None else _between(later.started, later.up)
    resumed = later.up or later.started or later.start
    return Loss(at, detection, stop, decision, rendezvous, worker_start, resumed, _between(at, resumed))


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)


# -- the first failure


def _with_first(story: CycleStory, named: RunFact | None, names: Sequence[str]) -> CycleStory:
    """Return the cycle with its first failure: the one that the coordinator has named, else the earliest, by the nodes'
    clocks, of those that failed by themselves; none if no worker failed, or who began a hang is not known. `named`: the
    coordinator's fact."""
    hung = story.hang is not None  # its workers were stopped before they failed
    if story.ended is not CycleEnd.FAILED or (named is None if hung else not story.failures):
        return story
    if named is None:
        failure = min(story.failures, key=lost_a_peer)
    else:
        failure = named.failures[0]
        who = failure.infra_rank, failure.local_rank
        rank = next((each.rank for each in story.failures if (each.infra_rank, each.local_rank) == who), failure.rank)
        failure = replace(failure, rank=rank)
    name = _name(names, failure.infra_rank)
    lines, consequence = tuple(failure.last_lines.splitlines()), _consequence_of(story, name, failure)
    first = FirstFailedWorker(story.number, name, failure.rank, failure, lines, consequence_of=consequence)
    return replace(story, first=first)


def _consequence_of(story: CycleStory, name: str, failure: Failure) -> str:
    """Return why the cycle ended, if the cause is the loss of another node which was silent already when this worker
    failed; else ""."""
    if story.cause != Cause.NODE_LOST or name in (each.node for each in story.lost):
        return ""
    lost = min((each.at for each in story.lost), default=0.0)
    return story.reason if not failure.time or failure.time > lost - CLOCKS else ""

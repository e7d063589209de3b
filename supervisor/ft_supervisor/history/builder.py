"""Builds a run's history from its journals. Pure.

Where several coordinators wrote journals, the one with the highest term counts from the time at which it took charge;
later facts of an older coordinator are left out, because no node followed it any more. For times that no coordinator's
journal covers, the agents' facts are used. Clocks that are certainly wrong are corrected (history.clocks).
"""

from __future__ import annotations

from collections.abc import Sequence

from ft_supervisor.core.protocol.cost import Cost, cost, gpus_of
from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.history import clocks, game_days
from ft_supervisor.history.checkpoints import checkpoints
from ft_supervisor.history.cycles import cycles
from ft_supervisor.history.fact import FactKind, JournalFacts, RunFact
from ft_supervisor.history.model import CycleEnd, CycleStory, Fault, History, Takeover
from ft_supervisor.history.nodes import nodes, with_parts


def build(
    run_id: str,
    journals: Sequence[JournalFacts],
    verdict: Verdict | None,
    notes: Sequence[str] = (),
    faults: Sequence[Fault] = (),
) -> History:
    """Return the history of the run `run_id`. `journals`: the contents of each of the run's journals, in any order.
    `verdict`: the contents of verdict.json, if there is one. `notes`: lines for people, which come first in the
    history's own. `faults`: those in faults.jsonl, in any order."""
    names = max((each.nodes for each in journals), key=len, default=())
    led, tenures = _led(journals)
    agents = [fact for each in journals if each.machine == "agent" for fact in each.facts]
    ahead = clocks.offsets(led, agents)
    led = clocks.corrected(led, ahead, own=False)
    agents = clocks.corrected(agents, ahead, own=True)
    everything = sorted([*led, *agents], key=_when)
    uncovered: list[RunFact] = []
    ends: list[RunFact] = []
    for fact in agents:
        if not any(start <= fact.at <= end for start, end in tenures):
            uncovered.append(fact)
        elif fact.kind is FactKind.AGENT_ENDS:
            ends.append(fact)
    per_node = next((each.per_node for each in journals if each.per_node is not None), None)
    stories = cycles(everything, names, verdict, per_node)
    until = max((each.last - _off(each, ahead) for each in journals if each.last is not None), default=None)
    closed = next((fact for fact in led if fact.kind is FactKind.VERDICT_CLOSED), None)
    proposed = next((fact for fact in led if fact.kind is FactKind.VERDICT_PROPOSED), None)
    over = closed or (proposed if verdict else None)
    start, ended = _start(journals, ahead), over.at if over else None
    gpus = {node: count for each in journals for node, count in each.gpus.items()}
    account = _cost(
        stories,
        start,
        ended or until,
        over=ended is not None or verdict is not None,
        nodes=len(names),
        per_node=per_node,
        gpus=gpus_of(gpus, len(names)),
    )
    return History(
        run_id=run_id,
        nodes=with_parts(nodes([*sorted([*led, *uncovered], key=_when), *ends], names), stories),
        cycles=stories,
        takeovers=_takeovers(led, agents, names),
        start=start,
        until=until,
        ended=ended,
        verdict=verdict or (closed.verdict if closed else None),
        training=account.training + account.unknown if account and everything else None,
        cost=account if everything else None,
        per_node=per_node,
        name=next((each.name for each in journals if each.name), ""),
        checkpoints=checkpoints(
            (each for journal in journals for each in journal.checkpoints),
            [[at - _off(each, ahead) for at in part] for each in journals for part in each.beats if part],
            stories,
        ),
        active=next((each.active for each in journals if each.active is not None), None),
        faults=game_days.placed(faults, names, ahead, stories),
        notes=(*notes, *clocks.notes(ahead, names)),
    )


def _start(journals: Sequence[JournalFacts], ahead: dict[int, float]) -> float | None:
    """Return when the run began: with the first coordinator in charge. Each journal of it, and each copy, has that, so
    that a report of a running job begins at the same moment. Without one: with the first line of any journal."""
    led = [
        (fact.term, each.first)
        for each in journals
        for fact in each.facts
        if fact.kind is FactKind.TOOK_CHARGE and not fact.takeover and fact.term is not None and each.first is not None
    ]
    if led:
        return min(led)[1]
    return min((each.first - _off(each, ahead) for each in journals if each.first is not None), default=None)


def _cost(
    stories: Sequence[CycleStory],
    start: float | None,
    until: float | None,
    *,
    over: bool,
    nodes: int,
    per_node: int | None,
    gpus: int | None,
) -> Cost | None:
    """Return the account of the run's time; it is partial where a coordinator's journal is missing."""
    if start is None or until is None:
        return None
    partial = any(story.times.began is None or not story.choice or story.ended is CycleEnd.UNKNOWN for story in stories)
    times = [story.times for story in stories]
    return cost(start, until, times, over=over, partial=partial, nodes=nodes, per_node=per_node or 0, gpus=gpus)


def _off(journal: JournalFacts, ahead: dict[int, float]) -> float:
    """Return the seconds by which the clock of the journal's node is ahead; 0 for a coordinator's journal."""
    return 0.0 if journal.machine == "coordinator" or journal.node is None else ahead.get(journal.node, 0.0)


def _when(fact: RunFact) -> float:
    """Return the time at which the fact became known, by which facts are sorted."""
    return fact.at if fact.noticed is None else fact.noticed


def _led(journals: Sequence[JournalFacts]) -> tuple[list[RunFact], list[tuple[float, float]]]:
    """Return the facts of the coordinators that were in charge, in order, and the spans of time that they cover."""
    coordinators = [each for each in journals if each.machine == "coordinator"]
    starts: dict[int, float] = {}
    for each in coordinators:
        for fact in each.facts:
            if fact.kind is FactKind.TOOK_CHARGE and fact.term is not None:
                starts.setdefault(fact.term, fact.at)
    kept: list[RunFact] = []
    spans: list[tuple[float, float]] = []
    for each in coordinators:
        in_charge: dict[int, float] = {}
        for fact in each.facts:
            term = -1 if fact.term is None else fact.term
            until = min((at for other, at in starts.items() if other > term), default=float("inf"))
            if _when(fact) < until:
                kept.append(fact)
            if fact.kind is FactKind.TOOK_CHARGE:
                in_charge[term] = until
        spans += [(starts[term], min(until, each.last or 0.0)) for term, until in in_charge.items()]
    return sorted(kept, key=_when), spans


def _takeovers(led: Sequence[RunFact], agents: Sequence[RunFact], names: Sequence[str]) -> tuple[Takeover, ...]:
    found: list[Takeover] = []
    before = float("-inf")
    for fact in led:
        if fact.kind is not FactKind.TOOK_CHARGE:
            continue
        if fact.takeover:
            last: dict[int | None, float] = {}
            for each in agents:
                if each.kind is FactKind.DISCONNECTED and before < each.at <= fact.at:
                    last[each.node] = each.at
            node = names[fact.node] if fact.node is not None and fact.node < len(names) else ""
            gap = fact.at - min(last.values()) if last else None
            found.append(Takeover(fact.at, fact.term or 0, node, gap))
        before = fact.at
    return tuple(found)

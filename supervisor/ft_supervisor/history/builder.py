"""A run's history, made of what its journals say. Pure.

Of several coordinators the one of the highest term is believed from when it was in charge; what an older one says of
later times is left out, as nobody followed it. For times of which no coordinator's journal is left, the agents' tell.
Clocks that are certainly off are put right, history.clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.history import clocks, game_days
from ft_supervisor.history.cycles import cycles, first_failure, training
from ft_supervisor.history.fact import Fact, Told
from ft_supervisor.history.model import Fault, History, Takeover
from ft_supervisor.history.nodes import nodes


def build(
    run_id: str,
    told: Sequence[Told],
    verdict: Verdict | None,
    notes: Sequence[str] = (),
    faults: Sequence[Fault] = (),
) -> History:
    """`told`: what each of the run's journals says, in any order. `verdict`: of the run's file, if there is one.
    `faults`: of the run's other file, in any order."""
    names = max((each.nodes for each in told), key=len, default=())
    led, tenures = _led(told)
    agents = [fact for each in told if each.machine == "agent" for fact in each.facts]
    ahead = clocks.offsets(led, agents)
    led = clocks.corrected(led, ahead, own=False)
    agents = clocks.corrected(agents, ahead, own=True)
    everything = sorted([*led, *agents], key=_when)
    untold: list[Fact] = []
    ends: list[Fact] = []
    for fact in agents:
        if not any(start <= fact.at <= end for start, end in tenures):
            untold.append(fact)
        elif fact.what == "ends":
            ends.append(fact)
    per_node = next((each.per_node for each in told if each.per_node is not None), None)
    stories = cycles(everything, names, verdict)
    until = max((each.last - _off(each, ahead) for each in told if each.last is not None), default=None)
    said = next((fact for fact in led if fact.what == "verdict"), None)
    proposed = next((fact for fact in led if fact.what == "proposed"), None)
    over = said or (proposed if verdict else None)
    return History(
        run_id=run_id,
        nodes=nodes([*sorted([*led, *untold], key=_when), *ends], names),
        cycles=stories,
        takeovers=_takeovers(led, agents, names),
        start=min((each.first - _off(each, ahead) for each in told if each.first is not None), default=None),
        until=until,
        ended=over.at if over else None,
        verdict=verdict or (said.verdict if said else None),
        training=training(stories, until) if everything else None,
        per_node=per_node,
        active=next((each.active for each in told if each.active is not None), None),
        first_failure=first_failure(everything, stories, names, per_node),
        faults=game_days.placed(faults, names, ahead, stories),
        notes=(*notes, *clocks.notes(ahead, names)),
    )


def _off(told: Told, ahead: dict[int, float]) -> float:
    return 0.0 if told.machine == "coordinator" or told.node is None else ahead.get(told.node, 0.0)


def _when(fact: Fact) -> float:
    return fact.at if fact.told is None else fact.told


def _led(told: Sequence[Told]) -> tuple[list[Fact], list[tuple[float, float]]]:
    """What coordinators say that were in charge, in order, and the times that they tell of."""
    journals = [each for each in told if each.machine == "coordinator"]
    starts: dict[int, float] = {}
    for each in journals:
        for fact in each.facts:
            if fact.what == "in_charge" and fact.term is not None:
                starts.setdefault(fact.term, fact.at)
    kept: list[Fact] = []
    spans: list[tuple[float, float]] = []
    for each in journals:
        in_charge: dict[int, float] = {}
        for fact in each.facts:
            term = -1 if fact.term is None else fact.term
            until = min((at for other, at in starts.items() if other > term), default=float("inf"))
            if _when(fact) < until:
                kept.append(fact)
            if fact.what == "in_charge":
                in_charge[term] = until
        spans += [(starts[term], min(until, each.last or 0.0)) for term, until in in_charge.items()]
    return sorted(kept, key=_when), spans


def _takeovers(led: Sequence[Fact], agents: Sequence[Fact], names: Sequence[str]) -> tuple[Takeover, ...]:
    found: list[Takeover] = []
    before = float("-inf")
    for fact in led:
        if fact.what != "in_charge":
            continue
        if fact.takeover:
            last: dict[int | None, float] = {}
            for each in agents:
                if each.what == "disconnected" and before < each.at <= fact.at:
                    last[each.node] = each.at
            node = names[fact.node] if fact.node is not None and fact.node < len(names) else ""
            gap = fact.at - min(last.values()) if last else None
            found.append(Takeover(fact.at, fact.term or 0, node, gap))
        before = fact.at
    return tuple(found)

"""Corrects nodes' clocks that are wrong, as far as the journals prove it. Pure.

An agent starts a cycle's workers after the coordinator has begun the cycle, and the coordinator receives the report of
their end after the agent has seen it. Where the journals show the opposite order, the agent's clock is wrong by at
least that difference, which is subtracted from all times that its node has written. A difference smaller than the
travel time of a message cannot be detected, and stays. The coordinators' own clocks are taken as right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_supervisor.history.fact import FactKind, RunFact

_LEAST = 0.01
"""Seconds. Smaller offsets are ignored: a header's time of day has milliseconds."""
_WORTH_A_NOTE = 1.0
"""Seconds. Offsets from here on get a note for people."""


def offsets(led: Sequence[RunFact], agents: Sequence[RunFact]) -> dict[int, float]:
    """Return the seconds by which each node's clock is at least ahead of the coordinators' (negative: behind), by
    infra_rank. Only nodes with a proven offset are included. `led`: the coordinators' facts; `agents`: all agents'."""
    began: dict[str, float] = {}
    heard: dict[tuple[int | None, str], float] = {}
    most: dict[int, float] = {}
    least: dict[int, float] = {}
    for fact in led:
        if fact.kind is FactKind.CYCLE_BEGAN:
            began.setdefault(fact.cycle, fact.at)
        elif fact.kind in (FactKind.WORKERS_STOPPED, FactKind.WORKERS_SUCCEEDED):
            heard.setdefault((fact.node, fact.cycle), fact.at)
    for fact in agents:
        node = -1 if fact.node is None else fact.node
        if fact.kind is FactKind.WORKERS_STARTED and fact.cycle in began:
            ahead = fact.at - began[fact.cycle]
            most[node] = min(most.get(node, ahead), ahead)
        elif (
            fact.kind in (FactKind.WORKERS_GONE, FactKind.WORKERS_EXITED)
            and not fact.failures
            and (node, fact.cycle) in heard
        ):
            ahead = fact.at - heard[node, fact.cycle]
            least[node] = max(least.get(node, ahead), ahead)
    found = {}
    for node in most.keys() | least.keys():
        low, high = least.get(node, float("-inf")), most.get(node, float("inf"))
        offset = low if low > 0 else min(high, 0.0)
        if low <= high and abs(offset) >= _LEAST:  # else the coordinators' clocks differ from one another
            found[node] = offset
    return found


def corrected(facts: Sequence[RunFact], ahead: dict[int, float], *, own: bool) -> list[RunFact]:
    """Return the facts by the coordinators' clock. `own`: the nodes' clocks wrote these facts; if False, those clocks
    wrote only the times of the failures in them."""
    return [_corrected(fact, ahead, own) for fact in facts] if ahead else list(facts)


def _corrected(fact: RunFact, ahead: dict[int, float], own: bool) -> RunFact:
    failures = tuple(replace(each, time=each.time - ahead.get(each.infra_rank, 0.0)) for each in fact.failures)
    at = fact.at - ahead.get(-1 if fact.node is None else fact.node, 0.0) if own else fact.at
    return replace(fact, at=at, failures=failures) if failures or at != fact.at else fact


def notes(ahead: dict[int, float], names: Sequence[str]) -> list[str]:
    """Return lines for people about the clocks that are off by a second or more; five at most, and a count."""
    off = {node: offset for node, offset in sorted(ahead.items()) if abs(offset) >= _WORTH_A_NOTE}
    lines = [
        f"the clock of {names[node] if 0 <= node < len(names) else node} is {abs(offset):.1f} s or more"
        f" {'ahead of' if offset > 0 else 'behind'} the coordinator's, which is taken into account"
        for node, offset in off.items()
    ]
    return lines[:5] + ([f"the clocks of {len(lines) - 5} more nodes, too"] if len(lines) > 5 else [])

"""Nodes' clocks that differ, as far as their journals prove it. Pure.

An agent starts a cycle's workers after the coordinator has begun the cycle, and the coordinator hears of their end
after the agent has seen it. Where the journals say otherwise the agent's clock is off, at least by so much; that is
taken off all times that its node has written. What lies within a message's way nobody can tell, and it stays. The
coordinators' own clocks are believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_supervisor.history.fact import Fact

_LEAST = 0.01
"""Seconds below which nothing is changed: a header's time of day has milliseconds."""
_TELL = 1.0
"""Seconds from which people are told."""


def offsets(led: Sequence[Fact], agents: Sequence[Fact]) -> dict[int, float]:
    """Seconds by which a node's clock is at least ahead of the coordinators' (behind: negative), by infra_rank; of
    nodes alone for which that is certain. `led`: the coordinators' facts; `agents`: all agents'."""
    began: dict[str, float] = {}
    heard: dict[tuple[int | None, str], float] = {}
    most: dict[int, float] = {}
    least: dict[int, float] = {}
    for fact in led:
        if fact.what == "began":
            began.setdefault(fact.cycle, fact.at)
        elif fact.what in ("stopped", "succeeded"):
            heard.setdefault((fact.node, fact.cycle), fact.at)
    for fact in agents:
        node = -1 if fact.node is None else fact.node
        if fact.what == "run" and fact.cycle in began:
            ahead = fact.at - began[fact.cycle]
            most[node] = min(most.get(node, ahead), ahead)
        elif fact.what in ("gone", "exited") and not fact.failures and (node, fact.cycle) in heard:
            ahead = fact.at - heard[node, fact.cycle]
            least[node] = max(least.get(node, ahead), ahead)
    found = {}
    for node in most.keys() | least.keys():
        low, high = least.get(node, float("-inf")), most.get(node, float("inf"))
        offset = low if low > 0 else min(high, 0.0)
        if low <= high and abs(offset) >= _LEAST:  # else the coordinators' clocks differ from one another
            found[node] = offset
    return found


def corrected(facts: Sequence[Fact], ahead: dict[int, float], *, own: bool) -> list[Fact]:
    """By the coordinators' clock. `own`: they are the nodes' own facts; else only the times in them are."""
    return [_corrected(fact, ahead, own) for fact in facts] if ahead else list(facts)


def _corrected(fact: Fact, ahead: dict[int, float], own: bool) -> Fact:
    failures = tuple(replace(each, time=each.time - ahead.get(each.infra_rank, 0.0)) for each in fact.failures)
    at = fact.at - ahead.get(-1 if fact.node is None else fact.node, 0.0) if own else fact.at
    return replace(fact, at=at, failures=failures) if failures or at != fact.at else fact


def notes(ahead: dict[int, float], names: Sequence[str]) -> list[str]:
    """For people: the clocks that are off by a second or more."""
    off = {node: offset for node, offset in sorted(ahead.items()) if abs(offset) >= _TELL}
    told = [
        f"the clock of {names[node] if 0 <= node < len(names) else node} is {abs(offset):.1f} s or more"
        f" {'ahead of' if offset > 0 else 'behind'} the coordinator's, which is taken into account"
        for node, offset in off.items()
    ]
    return told[:5] + ([f"the clocks of {len(told) - 5} more nodes, too"] if len(told) > 5 else [])

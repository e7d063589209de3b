"""Shrinks a plan that fails to a smaller one that breaks the same invariant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.clockwork import Breach
from tests.simulation.plan import Plan
from tests.simulation.world import Machines, World

BOUND = 600
"""Number of jobs that are run at most."""


def breach(plan: Plan, machines: Machines | None = None) -> Breach | None:
    """Run this plan's job, and return its breach, None if there is none."""
    try:
        World(plan, machines).run()
    except Breach as found:
        return found
    return None


def shrink(plan: Plan, machines: Machines | None = None) -> Plan:
    """Return a plan with fewer and shorter faults, fewer nodes and a plainer job that breaks the same invariant."""
    first = breach(plan, machines)
    assert first is not None
    number, tried = first.number, 0

    def fails(smaller: Plan) -> bool:
        nonlocal tried
        tried += 1
        found = breach(smaller, machines)
        return found is not None and found.number == number

    while tried < BOUND:
        smaller = _first(_smaller(plan), fails, BOUND - tried)
        if smaller is None:
            break
        plan = smaller
    return plan


def _first(plans: Iterator[Plan], fails: Callable[[Plan], bool], bound: int) -> Plan | None:
    for _, plan in zip(range(bound), plans, strict=False):
        if fails(plan):
            return plan
    return None


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield all plans that are one step smaller, the greatest steps first."""
    for i in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:i] + plan.faults[i + 1 :])
    if plan.fails:
        yield replace(plan, fails=plan.fails[1:])
    if plan.slurm != "lives":
        yield replace(plan, slurm="lives")
    if plan.habits:
        yield replace(plan, habits=plan.habits[1:])
    if plan.in_process:
        yield replace(plan, in_process=False, habits=())
    if plan.stubborn:
        yield replace(plan, stubborn=())
    if plan.nodes > 2 and all(max(fault.nodes, default=0) < plan.nodes - 1 for fault in plan.faults):
        yield replace(plan, nodes=plan.nodes - 1, active=min(plan.active, plan.nodes - 1))
    if plan.active > 1:
        yield replace(plan, active=plan.active - 1)
    for slow in (0.005, 0.05):
        if slow < plan.slow:
            yield replace(plan, slow=slow)
    for i, fault in enumerate(plan.faults):
        if fault.seconds > 0.2 and not plan.gentle:
            shorter = replace(fault, seconds=float(int(fault.seconds / 2)) or 0.1)
            yield replace(plan, faults=(*plan.faults[:i], shorter, *plan.faults[i + 1 :]))

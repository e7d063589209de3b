"""Draws the plan of a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.plan import ACTOR, HABITS, IN_CHARGE, MOMENTS, PEERS, POLICIES, SLURM, Fault, Plan
from tests.simulation.themes import THEMES, Theme, launched


def draw(seed: int, theme: Theme | None = None) -> Plan:
    """Return the plan of this seed; with `theme`, another plan, with the theme's faults.

    `launch` has started every fourth job, and gets signals in some of these.
    """
    slurm = random.Random(f"slurm {seed}").choices(SLURM, (6, 1, 1, 1, 1, 1, 1))[0]
    plan = in_process(random.Random(f"restart {seed}"), replace(_draw(seed, theme), slurm=slurm))
    if theme is None and seed % 4 == 3:
        dice = random.Random(f"launch {seed}")
        signalled = not plan.gentle and dice.random() < 0.3
        plan = launched(dice, plan) if signalled else replace(plan, launch=True)
    # Slurm's answers to `launch` are drawn apart from those to the daemon that ends the job.
    return replace(plan, slurm="lives") if plan.launch else plan


def in_process(dice: random.Random, plan: Plan) -> Plan:
    """Return the plan; every third one restarts in process, with habits for its workers."""
    if dice.random() < 0.67:
        return plan
    habits = tuple((rank, dice.choice(HABITS)) for rank in range(plan.nodes) if dice.random() < 0.5)
    return replace(plan, in_process=True, habits=habits)


def _draw(seed: int, theme: Theme | None) -> Plan:
    dice = random.Random(f"plan {seed}")
    nodes = dice.choice((2, 3, 3, 4, 4, 5, 5, 6, 7))
    plan = Plan(
        seed=seed,
        nodes=nodes,
        active=dice.randint(1, max(1, nodes - dice.choice((0, 1, 1, 2)))),
        candidates=_draw_candidates(dice, nodes),
        restarts=dice.choice((0, 1, 2, 3, 5)),
        work=round(dice.choice((dice.uniform(0.5, 6.0), dice.uniform(4.0, 20.0))), 2),
        slow=dice.choice((0.005, 0.05, 0.3)),
        peers=dice.choice(PEERS),
        fails=tuple((dice.randrange(nodes), dice.randrange(3)) for _ in range(dice.choice((0, 0, 0, 1, 2)))),
        stubborn=tuple(rank for rank in range(nodes) if dice.random() < 0.15),
        policy=dice.choice(("plain", "plain", *POLICIES)),
    )
    if theme is not None:
        return theme(dice, plan)
    form = dice.random()
    if form < 0.02:
        return plan
    if form < 0.4:
        return dice.choice(THEMES)(dice, plan)
    last = 4.0 + dice.choice((1.0, 1.5, 2.5)) * plan.work
    faults = [fault for _ in range(dice.choice((1, 1, 2, 2, 3))) for fault in _draw_faults(dice, nodes, last)]
    return replace(plan, faults=tuple(faults))


def _draw_candidates(dice: random.Random, nodes: int) -> tuple[int, ...] | int:
    if dice.random() < 0.7:
        return dice.choice((1, 2, 3, 3, 3, 4))
    return tuple(dice.sample(range(nodes), dice.randint(1, min(3, nodes))))


def _draw_faults(dice: random.Random, nodes: int, last: float) -> list[Fault]:
    """Return one fault at any time, or a few that follow one another closely, some aimed at a moment."""
    moment = dice.choice(MOMENTS) if dice.random() < 0.45 else ""
    at = dice.choice((0.0, dice.uniform(0.0, 0.3), dice.uniform(0.0, 8.0))) if moment else dice.uniform(0.0, last)
    faults = [_draw_fault(dice, nodes, at, moment)]
    while dice.random() < 0.5 and len(faults) < 4:
        at += dice.choice((0.0, dice.uniform(0.0, 1.0), dice.uniform(0.0, 7.5), dice.uniform(5.0, 7.5)))
        faults.append(_draw_fault(dice, nodes, at, moment))
    return faults


_WEIGHTS = {
    **{"worker": 4, "agent": 8, "coordinator": 9, "daemon": 3, "node": 7},
    **{"freeze-agent": 4, "freeze-coordinator": 9, "freeze-daemon": 3, "freeze-children": 3, "freeze-node": 9},
    **{
        "cut-node": 9,
        "cut-pair": 5,
        "cut-way": 6,
        "split": 12,
        "reset": 10,
        "signal": 2,
        "cancel": 1,
        "repeat": 10,
        "files": 3,
        "sick": 6,
        "unable": 5,
        "drain": 5,
        "limit": 2,
        "stranger": 6,
        "squatter": 6,
    },
    "outside": 0,
}


def _draw_fault(dice: random.Random, nodes: int, at: float, moment: str) -> Fault:
    kind = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    special = [IN_CHARGE, IN_CHARGE, ACTOR] if moment else [IN_CHARGE]
    node = dice.choice(special) if dice.random() < 0.4 else dice.randrange(nodes)
    longest = 10.0 if kind in ("freeze-agent", "freeze-daemon") else 18.0
    seconds = dice.choice((dice.uniform(0.1, 3.0), dice.uniform(0.1, longest), dice.uniform(4.0, 9.0)))
    at, seconds = round(at, 3), round(seconds, 2)
    match kind:
        case "cancel":
            return Fault(kind, at, (), 0.0, moment)
        case "limit":
            return Fault(kind, at, (), round(dice.uniform(0.0, 15.0), 2), moment)
        case "files":
            return Fault(kind, at, (), seconds, moment)
        case "cut-pair" | "cut-way":
            other = dice.choice([rank for rank in range(nodes) if rank != node])
            pair = (node, other) if dice.random() < 0.5 else (other, node)
            return Fault(kind, at, pair, seconds, moment)
        case "split":
            side = dice.sample(range(nodes), dice.randint(1, nodes - 1))
            return Fault(kind, at, tuple(sorted(side)), round(seconds + dice.uniform(0.0, 12.0), 2), moment)
        case "repeat":
            return Fault(kind, at, (node,), float(dice.randint(1, 12)), moment)
        case _ if kind.startswith(("freeze", "cut", "squatter")):
            return Fault(kind, at, (node,), seconds, moment)
    return Fault(kind, at, (node,), 0.0, moment)

"""Simulates a cluster of 63 nodes of which three cause half of the failures: what does the node memory save?

Each job gets 51 nodes of the cluster at random, of which 48 train for a day; a node that fails is replaced by a spare
for the rest of the job. The numbers are in docs/jobs.md.
"""

from __future__ import annotations

import random

from ft_supervisor.core.placement.avoidance import choose
from ft_supervisor.core.placement.node_memory import DAY, Blame, avoided, records
from ft_supervisor.core.placement.placement import FitNode
from ft_supervisor.core.protocol.settings import Placement

NODES, BAD, SIZE, ACTIVE = 63, 3, 51, 48
GOOD_RATE = 0.02
"""Failures of a good node in a day. A bad one has 20 times as many, so that three cause half of all."""
JOBS, WARM = 150, 20


def failures(mode: str, seed: int = 1) -> tuple[float, float]:
    """Return failures per job, and the share of them on bad nodes. `mode`: off, last (chosen last), add (excluded)."""
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(NODES)]
    blames: list[Blame] = []
    counted = bad = 0
    for job in range(JOBS):
        now = job * DAY
        known = records(blames, now, 1, {}) if mode != "off" else ()
        excluded = set(avoided(known, SIZE)) if mode == "add" else set()
        nodes = sorted(rng.sample([name for name in names if name not in excluded], SIZE))
        worst = avoided([record for record in known if record.node in nodes], SIZE)
        fit = {rank: FitNode(rank, name) for rank, name in enumerate(nodes)}
        policy = Placement(avoid=worst)
        group: tuple[int, ...] = ()
        times = sorted((_first(rng, name), rank) for rank, name in enumerate(nodes))
        group = _next(fit, group, policy, nodes)
        for at, rank in times:
            if at >= DAY or rank not in group:
                continue
            blames.append(Blame(nodes[rank], "lost_node", now + at, job, 1))
            if job >= WARM:
                counted, bad = counted + 1, bad + _is_bad(nodes[rank])
            del fit[rank]
            if not (group := _next(fit, group, policy, nodes)):
                break
        blames = [each for each in blames if now - each.at < 40 * DAY]
    return counted / (JOBS - WARM), bad / counted


def _is_bad(name: str) -> bool:
    return int(name[1:]) < BAD


def _first(rng: random.Random, name: str) -> float:
    return rng.expovariate(GOOD_RATE * (20 if _is_bad(name) else 1)) * DAY


def _next(fit: dict[int, FitNode], group: tuple[int, ...], policy: Placement, names: list[str]) -> tuple[int, ...]:
    domains = dict.fromkeys(range(len(names)), "")
    return choose(list(fit.values()), group, ACTIVE, policy, domains=domains, least=ACTIVE, names=names).group or ()


MODES = {
    "off": "without node memory",
    "last": "avoided nodes are chosen last",
    "add": "`submit --avoid add` in addition",
}


def table() -> str:
    """Return the failures per job with and without node memory, as docs/jobs.md has them."""
    rows = [
        f"| {words} | {each:.2f} | {100 * share:.0f} % |"
        for mode, words in MODES.items()
        for each, share in [failures(mode)]
    ]
    return "\n".join(["| | failures per job | share of the three nodes |", "| --- | --- | --- |", *rows])

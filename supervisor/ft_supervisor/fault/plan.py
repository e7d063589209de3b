"""Which process a fault hits, and what a seed draws. Pure: takes the daemons that were seen; time is in seconds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ft_supervisor.fault.messages import NotThere, Seen, Target, Wrong

JITTER = 0.5
"""Share of the pause between two faults by which it varies, each way, so that nothing falls into step with them."""
DRAWN = (Target.WORKER, Target.AGENT, Target.COORDINATOR, Target.DAEMON, Target.NODE)
"""What Target.ANY may come out as."""


@dataclass(frozen=True)
class Schedule:
    """`every`: seconds from one fault to the next, on average."""

    seed: int
    every: float
    count: int


@dataclass(frozen=True)
class Turn:
    """One fault of a schedule: `at` seconds after its start. `pick`, from 0 to below 1, chooses among the processes
    that are there by then."""

    at: float
    target: Target
    pick: float


@dataclass(frozen=True)
class Aim:
    """The process that will be hit. `pid` is for people: the executor on the node looks again."""

    seen: Seen
    target: Target
    rank: int | None
    pid: int

    def __str__(self) -> str:
        rank = "" if self.rank is None else f" rank={self.rank}"
        return f"{self.target} node={self.seen.node}{rank} pid={self.pid}"


def turns(schedule: Schedule, target: Target) -> list[Turn]:
    """Return a schedule's faults. They depend on the seed alone, not on the job."""
    chance = random.Random(schedule.seed)
    found, at = [], 0.0
    for _ in range(schedule.count):
        at += schedule.every * (1 - JITTER + 2 * JITTER * chance.random())
        drawn, pick = chance.random(), chance.random()
        found.append(Turn(at, DRAWN[int(drawn * len(DRAWN))] if target is Target.ANY else target, pick))
    return found


def aim(seen: Sequence[Seen], target: Target, *, node: str = "", rank: int | None = None, pick: float | None) -> Aim:
    """Choose the process to hit. `pick` None: the other arguments have to leave one process only.

    Raises NotThere, and Wrong when they leave several.
    """
    here = [each for each in seen if node in ("", each.node)]
    if not here:
        there = ", ".join(each.node for each in seen)
        raise NotThere(f"no daemon lives on {node}; there are {there}" if there else f"no daemon lives on {node}")
    found = _found(here, target, rank, everywhere=not node)
    if not found:
        raise NotThere(_nobody(here, target, node, rank))
    if pick is not None:
        return found[int(pick * len(found))]
    if len(found) == 1 or target is Target.COORDINATOR or (target is Target.WORKER and (node or rank is not None)):
        return found[0]
    how = "--node or --rank" if target is Target.WORKER else "--node"
    nodes = list(dict.fromkeys(each.seen.node for each in found))
    raise Wrong(f"which {target}? say so by {how}: {', '.join(nodes[:20])}")


def _found(here: Sequence[Seen], target: Target, rank: int | None, everywhere: bool) -> list[Aim]:
    match target:
        case Target.WORKER:
            workers = [
                Aim(each, target, worker.rank, worker.pid)
                for each in here
                for worker in each.workers
                if rank in (None, worker.rank)
            ]
            return sorted(workers, key=lambda one: (one.rank is None, one.rank or 0, one.pid))
        case Target.AGENT:
            return [Aim(each, target, None, each.agent) for each in here if each.agent is not None]
        case Target.COORDINATOR:
            found = [Aim(each, target, None, each.coordinator) for each in here if each.coordinator is not None]
            return _in_charge(found) if everywhere else found
        case _:
            return [Aim(each, target, None, each.daemon) for each in here]


def _in_charge(found: list[Aim]) -> list[Aim]:
    """Return the one of the highest term: others may not know yet that they are not in charge any more."""
    claims = [one for one in found if one.seen.in_charge is not None]
    return sorted(claims, key=lambda one: one.seen.in_charge or 0)[-1:]


def _nobody(here: Sequence[Seen], target: Target, node: str, rank: int | None) -> str:
    where = f"on {node}" if node else "in this job"
    if target is Target.COORDINATOR and not node:
        return "no coordinator is in charge just now"
    if target is Target.WORKER and any(worker.rank is None for each in here for worker in each.workers):
        return f"the ranks of the workers {where} cannot be read: they write over their environment; give --node alone"
    what = f"worker of rank {rank}" if rank is not None else str(target)
    return f"no {what} runs {where} just now"

"""Chooses the nodes that train. A pure function of healthy nodes, the previous cycle and the policy returns the nodes
by group_rank, with a reason.

Segments. With `segment: k` the group_ranks from i*k to (i+1)*k are segment i, k nodes of one domain. Nodes without a
domain are of one nameless domain. With k = 1 domains only tell which nodes are near.

A fresh job takes nodes that are in no explicit pool (one with `nodes` or `domains`) first, then those of the explicit
pools in their order, and leaves every pool its `reserve`; whole segments, domain by domain and by infra_rank.

A vacancy is filled by a standby whose pool serves the domain of the node that is gone: of the same domain first, then
in the pools' order, then by infra_rank; vacancies that find a standby of their own domain go before the others. The
reserve is there for this. With k > 1 only the segment's own domain can fill a vacancy; where it cannot, the segment
moves as a whole to k standbys of another domain, and its other nodes become standbys, which may fill other vacancies.

The size is fixed where `least` is `active`. Else it is the largest multiple of k that can be had, from `least` to
`active`: segments that cannot be replaced are dropped, and new segments are taken as by a fresh job (so beyond the
reserve, from pools that serve any domain), into the gaps first and then after the old ones. Survivors keep their
group_rank unless the group shrinks; then they keep their order. No node that survives in a whole segment is moved to
make room.

To make whole segments of few nodes out of many pools is a hard problem, and this algorithm is greedy. It finds a group
whenever there is one, and the largest elastic group,
  fresh                       where at most one pool has a reserve
  replacing, fixed size       with k = 1 always; with k > 1 where every pool serves any domain
  replacing, elastic          where no pool has a reserve
and elsewhere it may miss it. A group that it finds keeps all the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ft_supervisor.core.placement.growth import grow
from ft_supervisor.core.placement.pools import FitNode, Free, Pools
from ft_supervisor.core.placement.vacancies import Slot, fill
from ft_supervisor.core.protocol.settings import Placement

__all__ = ["Assignment", "FitNode", "assign", "could_grow"]

SHOWN = 4
"""How many changes a reason names."""


@dataclass(frozen=True)
class Assignment:
    """A choice. `group`: infra_ranks by group_rank, None if there is no group of `least` nodes. `reason`: one line for
    people."""

    group: tuple[int, ...] | None
    reason: str


def assign(
    nodes: Sequence[FitNode],
    former: Sequence[int],
    active: int,
    policy: Placement,
    *,
    domains: Mapping[int, str],
    least: int,
    names: Sequence[str] = (),
) -> Assignment:
    """Return the next cycle's active nodes, chosen from the healthy `nodes`, whose order does not matter.

    `former`: the previous cycle's infra_ranks by group_rank, none for a fresh job. `domains`: the domain_id of every
    node that has ever registered, by infra_rank. `active` and `least`: the most and the fewest active nodes, multiples
    of `policy.segment`. `names`: of all nodes by infra_rank, for the reason (Job.nodes).
    """
    segment = policy.segment
    if len(nodes) < least:
        return Assignment(None, f"{len(nodes)} of {least} nodes are left")
    free = Free(nodes, Pools(policy.pools))
    known = {**domains, **{node.infra_rank: node.domain_id for node in nodes}}
    slots = _slots(former[:active], segment, free, known)
    fill(slots, free)
    said = _Words(free, known, names)
    moves, lost = said.changes(slots), [slot for slot in slots if slot.vacant]
    if least < active or not slots:
        gaps = len(lost)
        new = grow(free, segment, active // segment - len(slots) + gaps)
        for slot, ranks in zip(lost, new, strict=False):
            slot.nodes = list(ranks)
    else:
        new = []
    group = [node for slot in slots for node in slot.present]
    group += [node for ranks in new[len(lost) :] for node in ranks]
    if len(group) < least:
        return Assignment(None, said.too_few(len(group), least, segment, lost))
    return Assignment(tuple(group), said.outcome(len(group), len(former), moves, lost, new))


def could_grow(
    nodes: Sequence[FitNode],
    former: Sequence[int],
    active: int,
    policy: Placement,
    *,
    domains: Mapping[int, str],
    least: int,
) -> int:
    """Return how many active nodes `assign` would find now; 0 for no group. `nodes` has the active ones too."""
    return len(assign(nodes, former, active, policy, domains=domains, least=least).group or ())


def _slots(former: Sequence[int], segment: int, free: Free, known: Mapping[int, str]) -> list[Slot]:
    """Return the former segments with the survivors in their places, and add all other nodes to `free`."""
    slots: list[Slot] = []
    placed: set[int | None] = set()
    healthy = free.nodes
    for at in range(0, len(former) - segment + 1, segment):
        ranks = tuple(former[at : at + segment])
        # A node that has registered anew may report another domain: the first survivor's domain counts.
        home = known.get(next((rank for rank in ranks if rank in healthy), ranks[0]), "")
        here = [rank if rank in healthy and (segment == 1 or known[rank] == home) else None for rank in ranks]
        placed.update(here)
        slots.append(Slot(len(slots), ranks, home, here))
    for rank in healthy.keys() - placed:
        free.add(rank)
    return slots


class _Words:
    """Writes the reasons."""

    def __init__(self, free: Free, known: Mapping[int, str], names: Sequence[str]) -> None:
        self._free = free
        self._known = known
        self._names = names

    def changes(self, slots: Sequence[Slot]) -> list[str]:
        """Return a text for each node that was replaced; a segment that moved is one change."""
        said: list[str] = []
        for slot in slots:
            here = slot.present
            if not here or tuple(here) == slot.former:
                continue
            if len(here) > 1 and not set(here) & set(slot.former):
                said.append(f"segment {slot.index} moves to {self._list(here)} ({self._of(here[0], slot.home)})")
                continue
            for before, after in zip(slot.former, here, strict=True):
                if before != after:
                    home = self._known.get(before, "") if len(here) == 1 else slot.home
                    said.append(f"{self._name(after)} ({self._of(after, home)}) for {self._name(before)}")
        return said

    def outcome(
        self, size: int, before: int, moves: list[str], lost: Sequence[Slot], new: Sequence[Sequence[int]]
    ) -> str:
        """Return why this group was chosen."""
        if not before:
            return f"{size} nodes to begin with"
        said = _some(moves, "; ")
        if lost:
            gone = self._list([rank for slot in lost for rank in slot.former])
            said += f"{'; ' if said else ''}no node may replace {gone}"
        if new:
            said += f"{'; ' if said else ''}new are {self._list([rank for ranks in new for rank in ranks])}"
        if size != before:
            return f"from {before} to {size} nodes: {said}" if said else f"from {before} to {size} nodes"
        return said or f"the same {size} nodes"

    def too_few(self, size: int, least: int, segment: int, lost: Sequence[Slot]) -> str:
        """Return why there is no group."""
        said = f"of {len(self._free.nodes)} healthy nodes {size} can be placed, {least} are needed: "
        if lost and segment == 1:
            return said + f"no pool's node may replace {self._list([slot.former[0] for slot in lost])}"
        if lost:
            where = ", ".join(str(slot.index) for slot in lost[:SHOWN]) + (" and others" if len(lost) > SHOWN else "")
            return said + f"no domain has {segment} nodes together for segment {where}"
        rest = len(self._free.ranks())
        why = [f"in no whole segment of {segment}"] if segment > 1 else []
        why += ["kept in reserve"] if any(self._free.pools.reserve(pool) for pool in self._free.pool.values()) else []
        return said + f"{rest} are {' or '.join(why)}"

    def _of(self, node: int, home: str) -> str:
        domain, pool = self._known[node], self._free.pools[self._free.pool[node]].name
        if not domain:
            return f"pool {pool}"
        return f"{'same domain' if domain == home else f'domain {domain}'}, pool {pool}"

    def _name(self, rank: int) -> str:
        node = self._free.nodes.get(rank)
        return node.name if node else self._names[rank] if rank < len(self._names) else f"node {rank}"

    def _list(self, ranks: Sequence[int]) -> str:
        return _some([self._name(rank) for rank in ranks], ", ")


def _some(items: Sequence[str], between: str) -> str:
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return between.join(items[:SHOWN]) + more

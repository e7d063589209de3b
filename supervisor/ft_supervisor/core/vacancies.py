"""Replacing: who takes the places of nodes that are gone, one segment of the group after another.

First every segment that its own domain can make whole stays; where the domain has too few nodes for all of its
segments, those go that have the most vacancies, and what is left of them is free for whoever stays. Then those that
went find a place in another domain, in the group's order. Nothing becomes free after that, and each segment is looked
at once in each step, so that this ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ft_supervisor.core.pools import Free


@dataclass
class Slot:
    """A segment's place in the group. `home`: the domain of its former nodes.

    `nodes`: who is there now, None for a vacancy. Once `fill` is done all of them are there, or none.
    """

    index: int
    former: tuple[int, ...]
    home: str
    nodes: list[int | None] = field(default_factory=list)

    @property
    def vacant(self) -> int:
        """How many are missing."""
        return self.nodes.count(None)

    @property
    def present(self) -> list[int]:
        """Who is there."""
        return [node for node in self.nodes if node is not None]


def fill(slots: Sequence[Slot], free: Free) -> None:
    """Make every segment whole or empty. A segment of one node stays only in a domain that has a name."""
    by_home: dict[str, list[Slot]] = {}
    for slot in slots:
        if slot.vacant and (slot.home or len(slot.nodes) > 1):
            by_home.setdefault(slot.home, []).append(slot)
    for broken in by_home.values():
        _stay(broken, free)
    hopeless: set[str] = set()  # homes for which nobody is left: nothing becomes free any more
    for slot in slots:
        if not slot.vacant or slot.home in hopeless:
            continue
        if offer := free.nearest(slot.home, len(slot.nodes)):
            slot.nodes = list(free.take(offer))
        else:
            hopeless.add(slot.home)
    hopeless.clear()
    for slot in slots:
        if slot.vacant and len(slot.nodes) == 1 and slot.home not in hopeless and not _rearrange(slots, slot, free):
            hopeless.add(slot.home)


def _stay(broken: list[Slot], free: Free) -> None:
    """Make as many whole as the domain can; empty the others.

    A segment that stays costs its vacancies, and what its other nodes could lend if it went: so the cheapest stay.
    """
    home = broken[0].home
    lends = {slot.index: sum(free.pools.serves(free.pool[node], home) for node in slot.present) for slot in broken}
    available = free.count(home, home) + sum(lends.values())
    stays: list[Slot] = []
    for slot in sorted(broken, key=lambda slot: (slot.vacant + lends[slot.index], slot.vacant, slot.index)):
        available -= slot.vacant + lends[slot.index]
        if available >= 0:
            stays.append(slot)
            continue
        for node in slot.present:
            free.add(node)
        slot.nodes = [None] * len(slot.nodes)
    for slot in sorted(stays, key=lambda slot: slot.index):
        spares = iter(free.take(free.first(home, home, slot.vacant)))
        slot.nodes = [next(spares) if node is None else node for node in slot.nodes]


def _rearrange(slots: Sequence[Slot], start: Slot, free: Free) -> bool:
    """For segments of one node: find one for `start` by letting others that were replaced take another pool's node.

    An augmenting path, over pools: with it, everybody is replaced whenever the pools' `serves` allow it at all.
    """
    filled: dict[int, list[Slot]] = {}
    for slot in slots:
        if slot.present and slot.present[0] != slot.former[0]:
            filled.setdefault(free.pool[slot.present[0]], []).append(slot)
    spare = {pool: node for node in reversed(free.ranks()) for pool in [free.pool[node]]}
    wants: dict[int, Slot] = {}
    queue = deque([start])
    while queue:
        slot = queue.popleft()
        for pool in sorted({*filled, *spare} - wants.keys()):
            if not free.pools.serves(pool, slot.home):
                continue
            wants[pool] = slot
            if pool in spare:
                free.remove(spare[pool])
                _pass_on(spare[pool], pool, wants, start, free)
                return True
            queue.extend(filled[pool])
    return False


def _pass_on(node: int, pool: int, wants: dict[int, Slot], start: Slot, free: Free) -> None:
    """Give `node` to who wants one of its pool, that one's to who wants one of that pool, and so on to `start`."""
    while (slot := wants[pool]) is not start:
        before = slot.present[0]
        slot.nodes = [node]
        node, pool = before, free.pool[before]
    start.nodes = [node]

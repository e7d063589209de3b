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

from ft_supervisor.core.placement.pools import Free


@dataclass(slots=True)
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


_Filled = dict[int, dict[frozenset[int], list[Slot]]]
"""Who was replaced: by the pool of the node that did, and the pools that may."""


def fill(slots: Sequence[Slot], free: Free) -> None:
    """Make every segment whole or empty. A segment of one node stays only in a domain that has a name."""
    by_home: dict[str, list[Slot]] = {}
    for slot in slots:
        if slot.vacant and (slot.home or len(slot.nodes) > 1):
            by_home.setdefault(slot.home, []).append(slot)
    for broken in by_home.values():
        _stay(broken, free)
    moving = [slot for slot in slots if slot.vacant]
    for slot in moving:
        if offer := free.nearest(free.pools.serving(slot.home), len(slot.nodes)):
            slot.nodes = list(free.take(offer))
    if left := [slot for slot in moving if slot.vacant and len(slot.nodes) == 1]:
        _rearrange(slots, left, free)


def _stay(broken: list[Slot], free: Free) -> None:
    """Make as many whole as the domain can; empty the others.

    A segment that stays costs its vacancies, and what its other nodes could lend if it went: so the cheapest stay.
    """
    home = broken[0].home
    serving = free.pools.serving(home)
    lends = {slot.index: sum(free.pool[node] in serving for node in slot.present) for slot in broken}
    available = free.count(home, serving) + sum(lends.values())
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
        spares = iter(free.take(free.first(home, serving, slot.vacant)))
        slot.nodes = [next(spares) if node is None else node for node in slot.nodes]


def _rearrange(slots: Sequence[Slot], left: Sequence[Slot], free: Free) -> None:
    """For segments of one node: let some that were replaced take another pool's node, so that more can be.

    Augmenting paths (a largest matching), between pools and what a vacancy may have: with them, everybody is replaced
    whenever the pools' `serves` allow it at all.
    """
    spare: dict[int, list[int]] = {}
    for node in reversed(free.ranks()):
        spare.setdefault(free.pool[node], []).append(node)
    filled: _Filled = {}
    for slot in slots:
        if slot.present and slot.present[0] != slot.former[0]:
            filled.setdefault(free.pool[slot.present[0]], {}).setdefault(free.pools.serving(slot.home), []).append(slot)
    hopeless: set[frozenset[int]] = set()
    for slot in left:
        serving = free.pools.serving(slot.home)
        path = [] if serving in hopeless else _path(serving, filled, spare)
        if not path:
            hopeless.add(serving)
            continue
        # From the pool with a spare back to `slot`: everybody takes the node that was just given up.
        node = spare[path[0][0]].pop()
        free.remove(node)
        for pool, other, serves in path:
            moved = slot if other is None else filled[other][serves].pop()
            filled.setdefault(pool, {}).setdefault(serves, []).append(moved)
            before, moved.nodes = moved.present, [node]
            node = before[0] if before else node


def _path(
    start: frozenset[int], filled: _Filled, spare: dict[int, list[int]]
) -> list[tuple[int, int | None, frozenset[int]]]:
    """The shortest chain from a pool with a spare: (pool, which other pool's node is given up for it, by whom).

    The last one gives up none: it is who started. Empty if there is no chain.
    """
    came: dict[int, tuple[int | None, frozenset[int]]] = {}
    queue: deque[tuple[int | None, frozenset[int]]] = deque([(None, start)])
    while queue:
        other, serving = queue.popleft()
        for pool in sorted(serving - came.keys()):
            came[pool] = other, serving
            if spare.get(pool):
                path, at = [], pool
                while True:
                    before, serves = came[at]
                    path.append((at, before, serves))
                    if before is None:
                        return path
                    at = before
            queue.extend((pool, serves) for serves, slots in filled.get(pool, {}).items() if slots)
    return []

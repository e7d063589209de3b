"""Fills the places of nodes that are gone, one segment of the group after another.

First, each segment stays that its own domain can make whole. Where the domain has too few nodes for all of its
segments, those with the most vacancies leave it, and their other nodes are free for the segments that stay. Then the
segments that left find a place in another domain, in the group's order. No node becomes free after that, and each step
looks at each segment once, so that this ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ft_supervisor.core.placement.pools import Free


@dataclass(slots=True)
class Slot:
    """A segment's place in the group. `home`: the domain of its former nodes.

    `nodes`: the present nodes, None for a vacancy. Once `fill` is done all of them are there, or none.
    """

    index: int
    former: tuple[int, ...]
    home: str
    nodes: list[int | None] = field(default_factory=list)

    @property
    def vacant(self) -> int:
        """How many nodes are missing."""
        return self.nodes.count(None)

    @property
    def present(self) -> list[int]:
        """The nodes that are there."""
        return [node for node in self.nodes if node is not None]


_Filled = dict[int, dict[frozenset[int], list[Slot]]]
"""The slots that were filled: by the pool of the node that filled them, and the pools that may fill them."""


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
    """Make as many segments whole as the domain has nodes for; empty the others.

    A segment that stays costs its vacancies, and the nodes that it could lend if it left: so the cheapest stay.
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
    """Let some slots of one node that were filled take another pool's node, so that more slots can be filled.

    This is a maximum matching by augmenting paths, between pools and vacancies: with it every node is replaced whenever
    the pools' `serves` allow it at all.
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
        # From the pool with a spare back to `slot`: each slot takes the node that was just given up.
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
    """Return the shortest chain from a pool with a spare: (pool, the other pool whose node is given up for it, and the
    pools that may serve the slot that gives it up).

    The last entry gives up none: it is the vacancy at which the search began. The chain is empty if there is none.
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

"""Fills the vacancies of a group: the places of nodes that are gone.

1. In each domain, free nodes of the domain fill the vacancies of its segments. If there are too few for all, the
   cheapest segments stay. The others leave the domain, and their remaining nodes become free.
2. Each segment that has left its domain gets as many free nodes of one other domain, in the group's order.
3. Segments of one node that are still empty get one by an exchange: a slot that was filled takes another pool's node.

No node becomes free after step 1, and each step visits each segment once, so the procedure ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ft_supervisor.core.placement.pools import Free


@dataclass(slots=True)
class Slot:
    """The place of one segment in the group.

    `index`: its position among the group's segments. `former`: infra_ranks of its former nodes, by group_rank. `home`:
    the domain of these, "" where there is none. `nodes`: infra_ranks by group_rank, None for a vacancy. After `fill`
    either all or none of the `nodes` are None.
    """

    index: int
    former: tuple[int, ...]
    home: str
    nodes: list[int | None] = field(default_factory=list)

    @property
    def vacant(self) -> int:
        """The number of vacancies."""
        return self.nodes.count(None)

    @property
    def present(self) -> list[int]:
        """The infra_ranks of the nodes that have a place here."""
        return [node for node in self.nodes if node is not None]


_Filled = dict[int, dict[frozenset[int], list[Slot]]]
"""Filled slots of one node, by the pool of their new node, and by the pools that may serve them."""


def fill(slots: Sequence[Slot], free: Free) -> None:
    """Fill all vacancies of each segment, or empty it. Changes `slots`, and `free` with them.

    Segments that have all their nodes do not change. A segment of one node without a domain has no home to stay in, so
    it takes part only in the steps 2 and 3 of the module's description.
    """
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
    """Fill as many segments of one domain as its nodes allow, and empty the others.

    The price of a segment that stays is its vacancies plus its present nodes that could fill vacancies of the domain if
    it left. The cheapest segments stay.
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
    """Fill the slots of `left` by exchanges: a filled slot takes a node of another pool and gives up its own.

    All these slots have one node. This is a maximum bipartite matching of pools and vacancies by augmenting paths, so
    as many slots are filled as the pools' `serves` allow.
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
        # The path runs from the pool with a spare back to `slot`: each slot takes the node that the one before gave up.
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
    """Return the shortest chain of exchanges from a pool with a spare to a slot that the pools of `start` may serve.

    Each entry is one exchange: (pool, other, serves). A slot that has a node of the pool `other`, and that the pools
    `serves` may serve, takes a node of `pool` instead. In the last entry `other` is None: the empty slot takes the
    node. The chain is empty if there is none. The search is breadth-first, from the empty slot.
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

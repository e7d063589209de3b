"""Makes new segments for a fresh job or one that grows: only whole ones, and none of a pool's reserve."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping

from ft_supervisor.core.placement.pools import NO_POOL, Free


def grow(free: Free, segment: int, count: int) -> list[list[int]]:
    """Return at most `count` new segments of free nodes, which are then no longer free.

    Nodes of no explicit pool go first, then the explicit pools in their order; each segment takes as few nodes of the
    later pool as it can. Where that makes fewer than `count`, pools without a reserve go first instead, if that makes
    more. Segments come by their domain's lowest infra_rank, and by infra_rank; domains count only where a segment has
    more than one node.
    """
    if count <= 0:
        return []
    pools = sorted(set(free.pool.values()))
    explicit = [pool for pool in pools if free.pools.explicit(pool)]
    found = _Attempt(free, segment, count, explicit).segments
    if len(found) < count:
        reserved = [pool for pool in pools if free.pools.reserve(pool)]
        found = max(found, _Attempt(free, segment, count, reserved).segments, key=len)
    for nodes in found:
        for node in nodes:
            free.remove(node)
    return found


class _Attempt:
    """One attempt with an order of the pools: those in `later` come after all others, one after another."""

    def __init__(self, free: Free, segment: int, count: int, later: list[int]) -> None:
        self._pool = free.pool
        self._level: Mapping[int, int] = {pool: at for at, pool in enumerate(later, 1)}
        self._segment = segment
        self._count = count
        ranks = free.ranks()
        sizes = Counter(self._pool[rank] for rank in ranks)
        self._budget = {
            pool: max(0, size - free.pools.reserve(pool)) for pool, size in sizes.items() if pool != NO_POOL
        }
        self._left: dict[str, list[int]] = {}
        for rank in ranks:
            if self._budget.get(self._pool[rank], 1):
                self._left.setdefault(free.nodes[rank].domain_id if segment > 1 else "", []).append(rank)
        self._order = {domain: ranks[0] for domain, ranks in self._left.items()}
        for left in self._left.values():
            left.sort(key=lambda rank: (self._level_of(rank), rank))
        self._taken: dict[str, list[int]] = {}
        self._made = 0
        if segment == 1:
            self._fill_one_by_one()
        else:
            for level in range(len(later) + 1):
                self._fill(level)
        self.segments = self._segments()

    def _level_of(self, rank: int) -> int:
        return self._level.get(self._pool[rank], 0)

    def _segments(self) -> list[list[int]]:
        found = []
        for domain in sorted(self._taken, key=lambda domain: self._order[domain]):
            ranks = sorted(self._taken[domain])
            found += [ranks[at : at + self._segment] for at in range(0, len(ranks), self._segment)]
        return found

    def _fill_one_by_one(self) -> None:
        """Take segments of one node, in order: they all cost the same, so that levels do not matter."""
        for rank in self._left.get("", ()):
            pool = self._pool[rank]
            if self._made < self._count and self._budget.get(pool, 1):
                self._made += 1
                self._taken.setdefault("", []).append(rank)
                if pool in self._budget:
                    self._budget[pool] -= 1

    def _fill(self, level: int) -> None:
        """Take segments of nodes up to this level while there are any: first those with the fewest nodes of it."""
        # Domains without nodes of this level were exhausted at the level before.
        there = {domain for domain, left in self._left.items() if any(self._level_of(rank) == level for rank in left)}
        heap = [(self._cost(self._next(domain, level), level), self._order[domain], domain) for domain in there]
        heapq.heapify(heap)
        while heap and self._made < self._count:
            cost, order, domain = heapq.heappop(heap)
            ranks = self._next(domain, level)
            if len(ranks) < self._segment:
                continue
            if (now := self._cost(ranks, level)) > cost:  # since it was counted a pool's budget was spent
                heapq.heappush(heap, (now, order, domain))
                continue
            self._take(domain, ranks)
            heapq.heappush(heap, (self._cost(self._next(domain, level), level), order, domain))

    def _cost(self, ranks: list[int], level: int) -> int:
        return sum(self._level_of(rank) == level for rank in ranks)

    def _next(self, domain: str, level: int) -> list[int]:
        """Return the domain's next segment, or fewer nodes if there is none."""
        found: list[int] = []
        used: Counter[int] = Counter()
        for rank in self._left[domain]:
            if len(found) == self._segment or self._level_of(rank) > level:
                break
            pool = self._pool[rank]
            if used[pool] < self._budget.get(pool, self._segment):
                used[pool] += 1
                found.append(rank)
        return found

    def _take(self, domain: str, ranks: list[int]) -> None:
        self._made += 1
        self._taken.setdefault(domain, []).extend(ranks)
        for rank in ranks:
            self._left[domain].remove(rank)
            if (pool := self._pool[rank]) in self._budget:
                self._budget[pool] -= 1
        for pool in {self._pool[rank] for rank in ranks}:
            if self._budget.get(pool) == 0:  # never looked at again: many nodes may lie in reserve
                for name, left in self._left.items():
                    self._left[name] = [rank for rank in left if self._pool[rank] != pool]

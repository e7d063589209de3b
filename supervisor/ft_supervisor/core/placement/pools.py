"""Pools of spares: the pool of each node, the domains that each pool serves, and the nodes that are still free."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ft_supervisor.core.protocol.settings import Pool

NO_POOL = -1
"""The index for a node that belongs to no pool. It replaces no node, but may be chosen when a job begins or grows."""


@dataclass(frozen=True)
class FitNode:
    """A healthy node that can be chosen. `domain_id` is "" for a node without a domain."""

    infra_rank: int
    name: str
    domain_id: str = ""


class Pools:
    """The policy's pools. A pool's index is its position in the policy's list."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = tuple(pools)
        self._by_node: dict[str, int] = {}
        self._by_domain: dict[str, int] = {}
        self._rest = NO_POOL
        for index, pool in enumerate(self._pools):
            for name in pool.nodes:
                self._by_node.setdefault(name, index)
            for domain in pool.domains:
                self._by_domain.setdefault(domain, index)
            if self._rest == NO_POOL and not self.explicit(index):
                self._rest = index
        self._for_any = frozenset(index for index, pool in enumerate(self._pools) if not pool.serves)
        self._for: dict[str, frozenset[int]] = {}
        for index, pool in enumerate(self._pools):
            for domain in pool.serves:
                self._for[domain] = self._for.get(domain, self._for_any) | {index}

    def __getitem__(self, index: int) -> Pool:
        return self._pools[index]

    def of(self, node: FitNode) -> int:
        """Return the index of the node's pool.

        It is the first pool that names the node or its domain, else the first one that names neither nodes nor domains,
        else NO_POOL.
        """
        none = len(self._pools)
        named = min(self._by_node.get(node.name, none), self._by_domain.get(node.domain_id, none))
        return named if named < none else self._rest

    def explicit(self, index: int) -> bool:
        """Whether the pool with this index names its nodes or their domains."""
        return index != NO_POOL and bool(self._pools[index].nodes or self._pools[index].domains)

    def reserve(self, index: int) -> int:
        """Return how many nodes of the pool with this index are kept for replacements; 0 for NO_POOL."""
        return 0 if index == NO_POOL else self._pools[index].reserve

    def serving(self, home: str) -> frozenset[int]:
        """Return the indices of the pools whose nodes may replace a node of the domain `home`."""
        return self._for.get(home, self._for_any)


class Free:
    """The free nodes: those without a place in the group. They are kept by domain and pool.

    Pools are taken in the policy's order, and the nodes of a pool by infra_rank.
    """

    def __init__(self, nodes: Iterable[FitNode], pools: Pools) -> None:
        self.nodes = {node.infra_rank: node for node in nodes}
        """All healthy nodes by infra_rank, free or not."""
        self.pools = pools
        self.pool = {rank: pools.of(node) for rank, node in self.nodes.items()}
        self._free: dict[str, dict[int, list[int]]] = {}

        self._offers: dict[tuple[frozenset[int], int], list[tuple[list[tuple[int, int]], str]]] = {}
        """Cache of `nearest`: for each (pools, count), a heap of the domains' offers and the domains' names."""

    def add(self, rank: int) -> None:
        """Add a node to the free ones."""
        domain = self._free.setdefault(self.nodes[rank].domain_id, {})
        insort(domain.setdefault(self.pool[rank], []), rank)
        self._offers.clear()

    def remove(self, rank: int) -> None:
        """Remove a node, which gets a place in the group, from the free ones."""
        ranks = self._free[self.nodes[rank].domain_id][self.pool[rank]]
        del ranks[bisect_left(ranks, rank)]

    def ranks(self) -> list[int]:
        """Return the infra_ranks of all free nodes, sorted."""
        return sorted(rank for domain in self._free.values() for ranks in domain.values() for rank in ranks)

    def count(self, domain: str, serving: frozenset[int]) -> int:
        """Return how many nodes of the pools `serving` are free in `domain`."""
        pools = self._free.get(domain, {})
        return sum(len(ranks) for pool, ranks in pools.items() if pool in serving)

    def first(self, domain: str, serving: frozenset[int], count: int) -> list[tuple[int, int]]:
        """Return (pool, infra_rank) of the first `count` free nodes of the pools `serving` in `domain`, or of fewer."""
        found: list[tuple[int, int]] = []
        pools = self._free.get(domain, {})
        for pool in sorted(pools):
            if len(found) < count and pool in serving:
                found += [(pool, rank) for rank in pools[pool][: count - len(found)]]
        return found

    def nearest(self, serving: frozenset[int], count: int) -> list[tuple[int, int]]:
        """Return (pool, infra_rank) of `count` free nodes of the pools `serving` in one domain: the offer that sorts
        first.

        The list is empty if no domain has so many.
        """
        if (serving, count) not in self._offers:
            offers = [(self.first(domain, serving, count), domain) for domain in self._free]
            self._offers[serving, count] = heap = [offer for offer in offers if len(offer[0]) == count]
            heapq.heapify(heap)
        heap = self._offers[serving, count]
        while heap:
            offer, domain = heap[0]
            now = self.first(domain, serving, count)
            if now == offer:
                return offer
            # A node of this offer has been taken since: the domain's new offer sorts later.
            heapq.heapreplace(heap, (now, domain)) if len(now) == count else heapq.heappop(heap)
        return []

    def take(self, offer: Iterable[tuple[int, int]]) -> list[int]:
        """Remove an offer's nodes from the free ones, and return their infra_ranks, sorted."""
        ranks = sorted(rank for _, rank in offer)
        for rank in ranks:
            self.remove(rank)
        return ranks

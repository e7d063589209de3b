"""Pools: which standby belongs to which, whom it may replace, and who is free."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ft_supervisor.core.settings import Pool

NOBODYS = -1
"""The pool of a node that is in none: it replaces nobody, but may be chosen to begin with or to grow."""


@dataclass(frozen=True)
class Candidate:
    """A healthy node that can be chosen. `domain_id` is "" where there is none."""

    infra_rank: int
    name: str
    domain_id: str = ""


class Pools:
    """The policy's pools, by their index in its order."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = tuple(pools)
        self._by_node: dict[str, int] = {}
        self._by_domain: dict[str, int] = {}
        self._rest = NOBODYS
        for index, pool in enumerate(self._pools):
            for name in pool.nodes:
                self._by_node.setdefault(name, index)
            for domain in pool.domains:
                self._by_domain.setdefault(domain, index)
            if self._rest == NOBODYS and not self.explicit(index):
                self._rest = index

    def __getitem__(self, index: int) -> Pool:
        return self._pools[index]

    def of(self, node: Candidate) -> int:
        """The first pool that names the node or its domain, else the first that names nothing, else NOBODYS."""
        none = len(self._pools)
        named = min(self._by_node.get(node.name, none), self._by_domain.get(node.domain_id, none))
        return named if named < none else self._rest

    def explicit(self, index: int) -> bool:
        """Whether the pool says itself who is in it."""
        return index != NOBODYS and bool(self._pools[index].nodes or self._pools[index].domains)

    def reserve(self, index: int) -> int:
        """How many of its nodes are kept for replacing."""
        return 0 if index == NOBODYS else self._pools[index].reserve

    def serves(self, index: int, home: str) -> bool:
        """Whether its nodes may replace one of the domain `home`."""
        return index != NOBODYS and (not self._pools[index].serves or home in self._pools[index].serves)


class Free:
    """The nodes that have no place in the group yet, by domain and pool; pools in their order, nodes by infra_rank."""

    def __init__(self, nodes: Iterable[Candidate], pools: Pools) -> None:
        self.nodes = {node.infra_rank: node for node in nodes}
        """All that are healthy, free or not."""
        self.pools = pools
        self.pool = {rank: pools.of(node) for rank, node in self.nodes.items()}
        self._free: dict[str, dict[int, list[int]]] = {}

    def add(self, rank: int) -> None:
        """The node is free (again)."""
        domain = self._free.setdefault(self.nodes[rank].domain_id, {})
        insort(domain.setdefault(self.pool[rank], []), rank)

    def remove(self, rank: int) -> None:
        """The node has a place."""
        self._free[self.nodes[rank].domain_id][self.pool[rank]].remove(rank)

    def ranks(self) -> list[int]:
        """All that are free, by infra_rank."""
        return sorted(rank for domain in self._free.values() for ranks in domain.values() for rank in ranks)

    def count(self, domain: str, home: str) -> int:
        """How many free nodes of `domain` may replace one of `home`."""
        pools = self._free.get(domain, {})
        return sum(len(ranks) for pool, ranks in pools.items() if self.pools.serves(pool, home))

    def first(self, domain: str, home: str, count: int) -> list[tuple[int, int]]:
        """(pool, infra_rank) of the first `count`, or of fewer, in `domain` that may replace one of `home`."""
        found: list[tuple[int, int]] = []
        pools = self._free.get(domain, {})
        for pool in sorted(pools):
            if len(found) < count and self.pools.serves(pool, home):
                found += [(pool, rank) for rank in pools[pool][: count - len(found)]]
        return found

    def nearest(self, home: str, count: int) -> list[tuple[int, int]]:
        """The first `count` of one domain that may replace nodes of `home`: the domain with the first of the first.

        Empty where no domain has so many.
        """
        offers = [offer for domain in self._free if len(offer := self.first(domain, home, count)) == count]
        return min(offers, default=[])

    def take(self, offer: Iterable[tuple[int, int]]) -> list[int]:
        """The offer's nodes by infra_rank, no longer free."""
        ranks = sorted(rank for _, rank in offer)
        for rank in ranks:
            self.remove(rank)
        return ranks

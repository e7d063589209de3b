"""Chooses the nodes that train, those to avoid last. Pure.

A node to avoid (Placement.avoid) is chosen only if the group would be smaller without it, or if there would be none.
One that trains already keeps its place: nothing is gained by a restart without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ft_supervisor.core.placement.placement import Assignment, FitNode, assign
from ft_supervisor.core.protocol.settings import Placement


def choose(
    nodes: Sequence[FitNode],
    former: Sequence[int],
    active: int,
    policy: Placement,
    *,
    domains: Mapping[int, str],
    least: int,
    names: Sequence[str] = (),
) -> Assignment:
    """Return the next cycle's active nodes. The arguments are those of `placement.assign`."""
    names_avoided = set(policy.avoid)
    avoided = {node.infra_rank for node in nodes if node.name in names_avoided} - set(former)
    if not avoided:
        return assign(nodes, former, active, policy, domains=domains, least=least, names=names)
    others = [node for node in nodes if node.infra_rank not in avoided]
    without = assign(others, former, active, policy, domains=domains, least=least, names=names)
    if without.group is not None and len(without.group) == active:
        return without
    order = _Order(avoided, [*(node.infra_rank for node in nodes), *former, *domains], names)
    found = assign(
        [FitNode(order.place(node.infra_rank), node.name, node.domain_id) for node in nodes],
        [order.place(rank) for rank in former],
        active,
        policy,
        domains={order.place(rank): domain for rank, domain in domains.items()},
        least=least,
        names=order.names,
    )
    if found.group is None or (without.group is not None and len(without.group) >= len(found.group)):
        return without if without.group is not None else found
    return Assignment(tuple(order.rank(place) for place in found.group), found.reason)


class _Order:
    """Another numbering of the nodes, in which those to avoid come last: placement goes by infra_rank."""

    def __init__(self, avoided: set[int], known: Sequence[int], names: Sequence[str]) -> None:
        every = range(max([len(names) - 1, *known], default=-1) + 1)
        self._ranks = sorted(every, key=lambda rank: (rank in avoided, rank))
        self._places = {rank: place for place, rank in enumerate(self._ranks)}
        self.names = tuple(names[rank] if rank < len(names) else f"node {rank}" for rank in self._ranks)

    def place(self, rank: int) -> int:
        """Return the number of the node with this infra_rank."""
        return self._places[rank]

    def rank(self, place: int) -> int:
        """Return the infra_rank of the node with this number."""
        return self._ranks[place]

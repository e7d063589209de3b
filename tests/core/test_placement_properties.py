"""Tests properties of every group of placement, and by brute force that a group is found if there is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

from ft_supervisor.core.placement.placement import Assignment, FitNode, assign, could_grow
from ft_supervisor.core.placement.pools import NO_POOL, Pools
from ft_supervisor.core.protocol.settings import Placement, Pool

MOST = 9
DOMAIN = st.sampled_from(["", "a", "b", "c"])
NAMED = st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=2).map(tuple)
POOL = st.builds(
    Pool,
    st.just("p"),
    nodes=st.lists(st.sampled_from([f"n{rank}" for rank in range(MOST)]), unique=True, max_size=4).map(tuple),
    domains=NAMED,
    serves=NAMED,
    reserve=st.integers(0, 3),
)


@dataclass(frozen=True)
class Case:
    known: tuple[FitNode, ...]
    healthy: tuple[FitNode, ...]
    former: tuple[int, ...]
    active: int
    least: int
    policy: Placement

    @property
    def domains(self) -> dict[int, str]:
        return {node.infra_rank: node.domain_id for node in self.known}

    @property
    def segment(self) -> int:
        return self.policy.segment

    def place(self, domain: str) -> str:
        """Return the value that all nodes of a segment share: their domain, or "" for segments of one node."""
        return domain if self.segment > 1 else ""

    def assign(self) -> Assignment:
        names = [node.name for node in self.known]
        return assign(
            self.healthy, self.former, self.active, self.policy, domains=self.domains, least=self.least, names=names
        )

    def segments(self, group: Sequence[int]) -> list[tuple[int, ...]]:
        return [tuple(group[at : at + self.segment]) for at in range(0, len(group), self.segment)]


@st.composite
def cases(draw: st.DrawFn, fresh: bool | None = None, elastic: bool | None = None, reserves: bool = True) -> Case:
    known = tuple(FitNode(rank, f"n{rank}", draw(DOMAIN)) for rank in range(draw(st.integers(1, MOST))))
    segment = draw(st.integers(1, 3))
    pools = tuple(draw(st.lists(POOL, min_size=1, max_size=3)))
    if not reserves:
        pools = tuple(replace(pool, reserve=0) for pool in pools)
    healthy = tuple(draw(st.permutations([node for node in known if draw(st.integers(0, 3))])))
    former: list[int] = []
    if not (draw(st.booleans()) if fresh is None else fresh):
        by_place: dict[str, list[int]] = {}
        for node in known:
            by_place.setdefault(node.domain_id if segment > 1 else "", []).append(node.infra_rank)
        whole = [
            ranks[at : at + segment]
            for ranks in (draw(st.permutations(ranks)) for ranks in by_place.values())
            for at in range(0, len(ranks) - segment + 1, segment)
        ]
        former = [rank for ranks in draw(st.permutations(whole))[: draw(st.integers(0, 4))] for rank in ranks]
        assume(former)
    most = len(former) // segment if former else draw(st.integers(1, 4))
    least = most
    if draw(st.booleans()) if elastic is None else elastic:
        most = max(2, most + draw(st.integers(0, 2)))
        least = draw(st.integers(1, most - 1))
    policy = Placement(segment=segment, pools=pools)
    return Case(known, healthy, tuple(former), most * segment, least * segment, policy)


@st.composite
def tight(draw: st.DrawFn, fresh: bool) -> Case:
    """Draw a case in which each node is named by one of two or three pools, and few choices of nodes are allowed."""
    segment = 2 if fresh else 1
    known = tuple(FitNode(rank, f"n{rank}", draw(st.sampled_from("abc"))) for rank in range(draw(st.integers(4, MOST))))
    former = () if fresh else tuple(range(draw(st.integers(2, len(known) // 2))))
    healthy = known[len(former) :]
    member = [draw(st.integers(0, 2)) for _ in known]
    reserved = draw(st.integers(0, 2)) if fresh else None
    pools = tuple(
        Pool(
            f"p{index}",
            nodes=tuple(node.name for node in known if member[node.infra_rank] == index),
            serves=() if fresh else tuple(draw(st.sets(st.sampled_from("abc"), min_size=1, max_size=2))),
            reserve=draw(st.integers(1, 3)) if index == reserved else 0,
        )
        for index in range(3)
    )
    size = 4 if fresh else len(former)
    return Case(known, healthy, former, size, 2 if fresh else size, Placement(segment=segment, pools=pools))


@given(cases())
def test_every_group(case: Case) -> None:
    found = case.assign()
    assert found.reason and "\n" not in found.reason
    if found.group is None:
        return
    group, homes = found.group, case.domains
    assert len(set(group)) == len(group) and set(group) <= {node.infra_rank for node in case.healthy}
    assert case.least <= len(group) <= case.active and len(group) % case.segment == 0
    for segment in case.segments(group):
        assert len({case.place(homes[node]) for node in segment}) == 1
    survivors = set(case.former) & {node.infra_rank for node in case.healthy}
    whole = [segment for segment in case.segments(case.former) if set(segment) <= survivors]
    if len(group) >= len(case.former):
        assert all(case.segments(group)[case.segments(case.former).index(segment)] == segment for segment in whole)
    else:
        kept = [segment for segment in case.segments(group) if segment in whole]
        assert kept == whole  # none is given up, and they keep their order


@given(cases())
def test_the_same_input_gives_the_same_group_and_a_second_assignment_moves_no_node(case: Case) -> None:
    found = case.assign()
    backwards = replace(case, healthy=case.healthy[::-1])
    assert backwards.assign() == found
    if found.group is not None:
        again = replace(case, former=found.group)
        assert again.assign().group == found.group
        least, domains = case.least, case.domains
        size = could_grow(case.healthy, found.group, case.active, case.policy, domains=domains, least=least)
        assert size == len(found.group)


@given(cases(elastic=False, fresh=False))
def test_each_replacement_is_of_a_pool_that_serves_the_domain(case: Case) -> None:
    group = case.assign().group
    if group is None:
        return
    pools, nodes = Pools(case.policy.pools), {node.infra_rank: node for node in case.known}
    for before, after in zip(case.segments(case.former), case.segments(group), strict=True):
        for node in set(after) - set(before):
            assert pools.of(nodes[node]) in pools.serving(case.domains[before[0]])


def reserves_are_kept(case: Case, chosen: Sequence[FitNode]) -> bool:
    pools = Pools(case.policy.pools)
    sizes = Counter(pools.of(node) for node in case.healthy)
    taken = Counter(pools.of(node) for node in chosen)
    return all(pool == NO_POOL or taken[pool] <= max(0, sizes[pool] - pools.reserve(pool)) for pool in taken)


def is_whole(case: Case, chosen: Sequence[FitNode]) -> bool:
    return all(count % case.segment == 0 for count in Counter(case.place(node.domain_id) for node in chosen).values())


def largest(case: Case) -> int:
    """Return the size of the largest group of a fresh job, found by trying all."""
    return max(
        size
        for size in range(0, case.active + 1, case.segment)
        if any(
            is_whole(case, chosen) and reserves_are_kept(case, chosen) for chosen in combinations(case.healthy, size)
        )
    )


@given(cases(fresh=True) | tight(fresh=True))
def test_a_fresh_group_keeps_reserves_and_is_the_largest_where_one_pool_has_one(case: Case) -> None:
    group = case.assign().group
    chosen = [node for node in case.healthy if group and node.infra_rank in group]
    assert reserves_are_kept(case, chosen)
    if sum(pool.reserve > 0 for pool in case.policy.pools) <= 1:
        best = largest(case)
        assert len(group or ()) == (best if best >= case.least else 0)


@given(cases(elastic=True, fresh=False, reserves=False))
def test_an_elastic_group_without_reserves_is_the_largest(case: Case) -> None:
    best = largest(case)
    assert len(case.assign().group or ()) == (best if best >= case.least else 0)


def can_fill(case: Case, vacant: Sequence[tuple[int, ...]], usable: frozenset[int]) -> bool:
    """Whether each of these former segments can have a segment of its own out of `usable`, found by trying all."""
    if not vacant:
        return True
    pools, nodes = Pools(case.policy.pools), {node.infra_rank: node for node in case.known}
    home = case.domains[vacant[0][0]]
    fits = [node for node in usable if node in vacant[0] or pools.of(nodes[node]) in pools.serving(home)]
    return any(
        len({case.place(case.domains[node]) for node in chosen}) == 1
        and can_fill(case, vacant[1:], usable - set(chosen))
        for chosen in combinations(fits, case.segment)
    )


@given(cases(elastic=False, fresh=False))
def test_a_group_of_the_same_size_is_found_where_there_is_one(case: Case) -> None:
    found_where_there_is_one(case)


@given(tight(fresh=False))
def test_chains_of_replacements_are_found(case: Case) -> None:
    found_where_there_is_one(case)


def found_where_there_is_one(case: Case) -> None:
    healthy = {node.infra_rank for node in case.healthy}
    vacant = [segment for segment in case.segments(case.former) if not set(segment) <= healthy]
    whole = set(case.former) - {node for segment in vacant for node in segment}
    there_is = can_fill(case, vacant, frozenset(healthy - whole))
    found = case.assign().group is not None
    assert there_is or not found
    if case.segment == 1 or not any(pool.serves for pool in case.policy.pools):
        assert found == there_is


@given(cases(elastic=False))
def test_segments_of_one_node_and_the_default_pool_follow_the_plain_rules(case: Case) -> None:
    case = replace(
        case, policy=Placement(), active=len(case.former) or case.active, least=len(case.former) or case.least
    )
    healthy = {node.infra_rank for node in case.healthy}
    expected = plain_replace(case.former, healthy, case.domains) if case.former else None
    assert case.assign().group == (expected if case.former else plain_first(healthy, case.active))


def plain_first(healthy: Collection[int], active: int) -> tuple[int, ...] | None:
    """Return the group of a fresh job without pools and segments: the lowest infra_ranks, None if there are too few."""
    return tuple(sorted(healthy)[:active]) if len(healthy) >= active else None


def plain_replace(
    former: Sequence[int], healthy: Collection[int], domains: Mapping[int, str]
) -> tuple[int, ...] | None:
    """Return the next active nodes, by group_rank, without pools and segments; None if there are too few.

    Survivors keep their group_rank. A vacancy is filled from the same domain where one is left there, else by the
    lowest infra_rank; vacancies that find a standby of their own domain go first, so that none takes another's.
    """
    spares = sorted(set(healthy) - set(former))
    chosen: dict[int, int] = {}
    vacant = [rank for rank, node in enumerate(former) if node not in healthy]
    for same_domain in (True, False):
        for rank in vacant:
            if rank in chosen:
                continue
            domain = domains.get(former[rank], "")
            fits = [spare for spare in spares if not same_domain or (domain and domains.get(spare) == domain)]
            if fits:
                chosen[rank] = fits[0]
                spares.remove(fits[0])
    if len(chosen) < len(vacant):
        return None
    return tuple(chosen.get(rank, node) for rank, node in enumerate(former))

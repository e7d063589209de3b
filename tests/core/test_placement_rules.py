"""Tests placement by a readable case for each rule. Nodes are written as domain and count: `a4 b4` is n0 to n7."""

import pytest

from ft_supervisor.core.placement.placement import Assignment, FitNode, assign, could_grow
from ft_supervisor.core.protocol.settings import Placement, Pool


def nodes(sizes: str) -> list[FitNode]:
    """Return the nodes of a text: `a2 b1 -1` is n0 and n1 in domain a, n2 in b, n3 in none."""
    domains = [part[0] for part in sizes.split() for _ in range(int(part[1:]))]
    return [FitNode(rank, f"n{rank}", domain.replace("-", "")) for rank, domain in enumerate(domains)]


def place(
    sizes: str,
    former: tuple[int, ...] = (),
    lost: tuple[int, ...] = (),
    *,
    active: int,
    least: int | None = None,
    segment: int = 1,
    pools: tuple[Pool, ...] = (Pool("any"),),
) -> Assignment:
    known = nodes(sizes)
    return assign(
        [node for node in known if node.infra_rank not in lost],
        former,
        active,
        Placement(segment=segment, pools=pools),
        domains={node.infra_rank: node.domain_id for node in known},
        least=active if least is None else least,
        names=[node.name for node in known],
    )


SPARE_B = (Pool("b", domains=("b",)), Pool("any"))


@pytest.mark.parametrize(
    ("sizes", "active", "segment", "group"),
    [
        ("a2 b2", 3, 1, (0, 1, 2)),
        ("a3 b4", 4, 2, (0, 1, 3, 4)),  # whole segments alone
        ("a3 b4", 6, 2, (0, 1, 3, 4, 5, 6)),
        ("a3 b3", 6, 2, None),
        ("a1 b4 a3", 4, 4, (0, 5, 6, 7)),  # the domain with the lowest infra_rank
        ("-4", 4, 4, (0, 1, 2, 3)),  # no domain is one domain
        ("-2 a2", 4, 4, None),
    ],
)
def test_a_fresh_job(sizes: str, active: int, segment: int, group: tuple[int, ...] | None) -> None:
    assert place(sizes, active=active, segment=segment).group == group


@pytest.mark.parametrize(
    ("sizes", "active", "segment", "pools", "group"),
    [
        ("b2 a3", 3, 1, SPARE_B, (2, 3, 4)),  # those of no explicit pool first
        ("b2 a3", 4, 1, SPARE_B, (0, 2, 3, 4)),
        ("b2 a3", 4, 1, (Pool("b", domains=("b",), reserve=2), Pool("any")), None),
        ("a4", 3, 1, (Pool("any", reserve=1),), (0, 1, 2)),
        ("a4", 4, 1, (Pool("any", reserve=1),), None),
        ("a4", 3, 1, (Pool("first", nodes=("n0",)), Pool("second", nodes=("n1",)), Pool("any")), (0, 2, 3)),
        ("a4", 3, 1, (Pool("one", nodes=("n0",)),), (1, 2, 3)),  # who is in no pool may begin
        # n0 is in both, and the first that names it or its domain counts
        ("a2 b2", 3, 1, (Pool("named", nodes=("n0",), reserve=1), Pool("a", domains=("a",))), (1, 2, 3)),
        # a segment of two pools takes as few of the later one as it can
        ("a4 b3", 4, 2, (Pool("x", nodes=("n1", "n2", "n3", "n6")), Pool("any")), (0, 1, 4, 5)),
        ("a4 b4", 4, 4, (Pool("any", reserve=4),), (0, 1, 2, 3)),
        ("a4 b4", 8, 4, (Pool("any", reserve=1),), None),
    ],
)
def test_a_fresh_job_and_pools(
    sizes: str, active: int, segment: int, pools: tuple[Pool, ...], group: tuple[int, ...] | None
) -> None:
    assert place(sizes, active=active, segment=segment, pools=pools).group == group


def test_the_reserve_is_spared_where_others_make_up_a_segment() -> None:
    # By the pools' order n0 and n1 would go first, and with them all that "any" does not keep.
    pools = (Pool("x", nodes=("n3", "n5")), Pool("any", reserve=2))
    assert place("a2 b2 c2", active=4, segment=2, pools=pools).group == (2, 3, 4, 5)
    assert place("a2 b2 c2", active=2, segment=2, pools=pools).group == (0, 1)


@pytest.mark.parametrize(
    ("sizes", "former", "lost", "pools", "group", "reason"),
    [
        ("a2 b2", (0, 1), (), (Pool("any"),), (0, 1), "the same 2 nodes"),
        ("a2 b2 a1", (0, 1), (1,), (Pool("any"),), (0, 4), "n4 (same domain, pool any) for n1"),
        ("a2 b2", (0, 1), (1,), (Pool("any"),), (0, 2), "n2 (domain b, pool any) for n1"),
        ("-4", (0, 1), (0,), (Pool("any"),), (2, 1), "n2 (pool any) for n0"),
        # the pools' order before the infra_rank, the domain before both
        ("a2 b4", (0, 1), (1,), (Pool("far", nodes=("n5",)), Pool("any")), (0, 5), "n5 (domain b, pool far) for n1"),
        (
            "a3 b2",
            (0, 1),
            (1,),
            (Pool("far", domains=("b",)), Pool("any")),
            (0, 2),
            "n2 (same domain, pool any) for n1",
        ),
        # the reserve is for replacing
        ("a2 b1", (0, 1), (1,), (Pool("any", reserve=1),), (0, 2), "n2 (domain b, pool any) for n1"),
        # b's pool serves b alone
        (
            "a1 b3",
            (0, 1),
            (0,),
            (Pool("b", domains=("b",), serves=("b",)), Pool("any")),
            None,
            "of 3 healthy nodes 1 can be placed, 2 are needed: no pool's node may replace n0",
        ),
        # n2 is near n0, but n1 can have no other node
        (
            "a1 b1 a1 c1",
            (0, 1),
            (0, 1),
            (Pool("all", nodes=("n2",)), Pool("a", serves=("a",))),
            (3, 2),
            "n3 (domain c, pool a) for n0; n2 (domain a, pool all) for n1",
        ),
        # a node without a pool replaces no node
        (
            "a3",
            (0, 1),
            (0,),
            (Pool("one", nodes=("n0",)),),
            None,
            "of 2 healthy nodes 1 can be placed, 2 are needed: no pool's node may replace n0",
        ),
        ("a3", (0, 1), (0, 2), (Pool("any"),), None, "1 of 2 nodes are left"),
    ],
)
def test_a_vacancy(
    sizes: str,
    former: tuple[int, ...],
    lost: tuple[int, ...],
    pools: tuple[Pool, ...],
    group: tuple[int, ...] | None,
    reason: str,
) -> None:
    assert place(sizes, former, lost, active=2, pools=pools) == Assignment(group, reason)


@pytest.mark.parametrize(
    ("sizes", "former", "lost", "group", "reason"),
    [
        ("a3 b3", (0, 1, 3, 4), (3,), (0, 1, 5, 4), "n5 (same domain, pool any) for n3"),
        # the segment moves, and n1 is a standby
        ("a2 b2 c2", (0, 1, 2, 3), (0,), (4, 5, 2, 3), "segment 0 moves to n4, n5 (domain c, pool any)"),
        # of two that can't both stay the later one moves, and what is left of it makes the other whole
        (
            "a4 b2",
            (0, 1, 2, 3),
            (1, 3),
            (0, 2, 4, 5),
            "n2 (same domain, pool any) for n1; segment 1 moves to n4, n5 (domain b, pool any)",
        ),
        (
            "a2 b2 c1",
            (0, 1, 2, 3),
            (0,),
            None,
            "of 4 healthy nodes 2 can be placed, 4 are needed: no domain has 2 nodes together for segment 0",
        ),
    ],
)
def test_a_vacancy_in_a_segment(
    sizes: str, former: tuple[int, ...], lost: tuple[int, ...], group: tuple[int, ...] | None, reason: str
) -> None:
    assert place(sizes, former, lost, active=4, segment=2) == Assignment(group, reason)


def test_the_segment_with_the_fewest_vacancies_stays() -> None:
    found = place("a6 b3", (0, 1, 2, 3, 4, 5), (0, 1, 5), active=6, segment=3)
    assert found.group == (6, 7, 8, 3, 4, 2)


def test_a_segment_moves_only_to_a_pool_that_serves_its_domain() -> None:
    pools = (Pool("b", domains=("b",), serves=("c",)), Pool("any"))
    assert place("a2 b2 c2", (0, 1), (0,), active=2, segment=2, pools=pools).group == (4, 5)
    assert place("a2 b2 c1", (0, 1), (0,), active=2, segment=2, pools=pools).group is None


def test_a_node_that_comes_back_in_another_domain_is_no_part_of_its_segment() -> None:
    healthy = [FitNode(0, "n0", "a"), FitNode(1, "n1", "b"), FitNode(2, "n2", "a")]
    found = assign(healthy, (0, 1), 2, Placement(segment=2), domains={0: "a", 1: "a", 2: "a"}, least=2)
    assert found.group == (0, 2)


@pytest.mark.parametrize(
    ("sizes", "former", "lost", "segment", "group", "reason"),
    [
        ("a6", (0, 1, 2, 3, 4, 5), (1, 4), 1, (0, 2, 3, 5), "from 6 to 4 nodes: no node may replace n1, n4"),
        ("a4 b2", (0, 1, 2, 3, 4, 5), (2,), 2, (0, 1, 4, 5), "from 6 to 4 nodes: no node may replace n2, n3"),
        ("a6", (0, 1, 2, 3), (), 1, (0, 1, 2, 3, 4, 5), "from 4 to 6 nodes: new are n4, n5"),
        ("a5 b2", (4, 2, 0, 1), (), 2, (4, 2, 0, 1, 5, 6), "from 4 to 6 nodes: new are n5, n6"),
        (
            "a7",
            (0, 1, 2, 3),
            (2,),
            1,
            (0, 1, 4, 3, 5, 6),
            "from 4 to 6 nodes: n4 (same domain, pool any) for n2; new are n5, n6",
        ),
        ("a6", (), (0, 3), 2, (1, 2, 4, 5), "4 nodes to begin with"),
        ("a4", (), (), 2, (0, 1, 2, 3), "4 nodes to begin with"),
        ("a2 b2 c2", (0, 1, 2, 3, 4, 5), (1, 3), 2, None, "of 4 healthy nodes 2 can be placed, 4 are needed:"),
        ("a4", (0, 1, 2, 3), (1,), 1, None, "3 of 4 nodes are left"),
    ],
)
def test_an_elastic_job(
    sizes: str,
    former: tuple[int, ...],
    lost: tuple[int, ...],
    segment: int,
    group: tuple[int, ...] | None,
    reason: str,
) -> None:
    found = place(sizes, former, lost, active=6, least=4, segment=segment)
    assert found.group == group
    assert found.reason.startswith(reason)


def test_growing_leaves_the_reserve_and_replacing_takes_it() -> None:
    pools = (Pool("any", reserve=2),)
    assert place("a6", (0, 1), active=6, least=2, pools=pools).group == (0, 1, 2, 3)
    assert place("a6", (0, 1, 2, 3), (0,), active=6, least=2, pools=pools).group == (4, 1, 2, 3)


def test_an_elastic_job_takes_beyond_the_reserve_whom_no_vacancy_can_have() -> None:
    pools = (Pool("b", domains=("b",), serves=("b",), reserve=1), Pool("any"))
    found = place("a3 b2", (0, 1, 2), (1,), active=3, least=1, pools=pools)
    assert found == Assignment((0, 3, 2), "no node may replace n1; new are n3")


def test_how_far_a_job_could_grow() -> None:
    known = nodes("a5 b3")
    domains = {node.infra_rank: node.domain_id for node in known}
    policy = Placement(least=2, segment=2)
    assert could_grow(known, (0, 1), 8, policy, domains=domains, least=2) == 6
    assert could_grow(known[:3], (0, 1), 8, policy, domains=domains, least=2) == 2
    assert could_grow(known[:1], (0, 1), 8, policy, domains=domains, least=2) == 0

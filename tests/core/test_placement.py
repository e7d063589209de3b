"""Tests placement by tables, and by properties of every group, for any healthy nodes in any domains."""

from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.placement.placement import FitNode, assign
from ft_supervisor.core.protocol.settings import Placement

NODES = st.sets(st.integers(0, 15))
FORMER = st.lists(st.integers(0, 15), unique=True, min_size=1, max_size=8)
DOMAINS = st.dictionaries(st.integers(0, 15), st.sampled_from(["", "x", "y", "z"]))


def first(healthy: Collection[int], active: int) -> tuple[int, ...] | None:
    """Return the group of a fresh job of a fixed size."""
    nodes = [FitNode(rank, f"n{rank}") for rank in healthy]
    return assign(nodes, (), active, Placement(), domains={}, least=active).group


def next_group(former: Sequence[int], healthy: Collection[int], domains: Mapping[int, str]) -> tuple[int, ...] | None:
    """Return the group after `former`, with the same number of nodes."""
    nodes = [FitNode(rank, f"n{rank}", domains.get(rank, "")) for rank in healthy]
    return assign(nodes, former, len(former), Placement(), domains=domains, least=len(former)).group


@pytest.mark.parametrize(
    ("healthy", "active", "group"),
    [
        ({0, 1, 2, 3}, 3, (0, 1, 2)),
        ({9, 4, 11}, 2, (4, 9)),
        ({5}, 1, (5,)),
        ({0, 1}, 3, None),
        (set(), 1, None),
    ],
)
def test_the_lowest_nodes_begin(healthy: set[int], active: int, group: tuple[int, ...] | None) -> None:
    assert first(healthy, active) == group


@pytest.mark.parametrize(
    ("former", "healthy", "domains", "group"),
    [
        ((0, 1, 2), {0, 1, 2, 3}, {}, (0, 1, 2)),
        ((0, 1, 2), {0, 2, 3}, {}, (0, 3, 2)),
        ((0, 1, 2), {0, 2, 3, 4}, {1: "x", 3: "y", 4: "x"}, (0, 4, 2)),
        ((0, 1, 2), {0, 2, 3, 4}, {1: "z", 3: "y", 4: "x"}, (0, 3, 2)),
        ((0, 1, 2), {0, 2, 3, 4}, {1: "", 3: "y", 4: ""}, (0, 3, 2)),  # no domain is not a domain
        ((0, 1, 2), {2, 3, 4}, {0: "x", 1: "y", 3: "y", 4: "x"}, (4, 3, 2)),
        ((0, 1, 2), {2, 3, 4}, {0: "z", 1: "x", 3: "x", 4: "y"}, (4, 3, 2)),  # none takes another's
        ((2, 0, 1), {1, 2, 5}, {}, (2, 5, 1)),
        ((0, 1, 2), {0, 2}, {}, None),
        ((0, 1), set(), {}, None),
    ],
)
def test_vacancies_are_filled(
    former: tuple[int, ...], healthy: set[int], domains: dict[int, str], group: tuple[int, ...] | None
) -> None:
    assert next_group(former, healthy, domains) == group


@given(NODES, st.integers(1, 8))
def test_the_first_group(healthy: set[int], active: int) -> None:
    group = first(healthy, active)
    assert (group is None) == (len(healthy) < active)
    if group is not None:
        assert list(group) == sorted(set(group))
        assert len(group) == active
        assert set(group) <= healthy
        assert all(node > group[-1] for node in healthy - set(group))


@given(FORMER, NODES, DOMAINS)
def test_the_next_group(former: list[int], healthy: set[int], domains: dict[int, str]) -> None:
    group = next_group(former, healthy, domains)
    assert (group is None) == (len(healthy) < len(former))
    if group is None:
        return
    assert len(set(group)) == len(group) == len(former)
    assert set(group) <= healthy
    left = healthy - set(group)
    for before, after in zip(former, group, strict=True):
        assert after == before or before not in healthy  # survivors keep their group_rank
        domain = domains.get(before, "")
        if before not in healthy and domain and domains.get(after) != domain:
            assert not [node for node in left if domains.get(node) == domain]  # none of its own domain was left


@given(FORMER, NODES, DOMAINS)
def test_as_many_vacancies_as_can_be_are_filled_from_their_own_domain(
    former: list[int], healthy: set[int], domains: dict[int, str]
) -> None:
    group = next_group(former, healthy, domains)
    if group is None:
        return
    vacant = [node for node in former if node not in healthy]
    spares = healthy - set(former)
    possible = 0
    for domain in {"x", "y", "z"}:
        wanted = sum(domains.get(node) == domain for node in vacant)
        possible += min(wanted, sum(domains.get(node) == domain for node in spares))
    moved = [(before, after) for before, after in zip(former, group, strict=True) if before != after]
    same = sum(bool(domains.get(before)) and domains.get(before) == domains.get(after) for before, after in moved)
    assert same == possible


@given(FORMER, NODES, DOMAINS)
def test_a_second_assignment_moves_no_node(former: list[int], healthy: set[int], domains: dict[int, str]) -> None:
    group = next_group(former, healthy, domains)
    if group is not None:
        assert next_group(group, healthy, domains) == group

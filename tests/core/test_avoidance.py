"""Nodes to avoid are chosen last, and change nothing else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.core.test_placement_properties import MOST, Case, cases

from ft_supervisor.core.placement.avoidance import choose
from ft_supervisor.core.placement.placement import Assignment, FitNode
from ft_supervisor.core.protocol.settings import Placement, Pool

NODES = [FitNode(rank, f"n{rank}") for rank in range(6)]
NAMES = [node.name for node in NODES]
AVOID = st.lists(st.sampled_from([f"n{rank}" for rank in range(MOST)]), unique=True, max_size=4).map(tuple)


def chosen(
    avoid: str, former: tuple[int, ...] = (), active: int = 4, healthy: str = "012345", least: int = 4
) -> object:
    policy = Placement(avoid=tuple(f"n{rank}" for rank in avoid), pools=(Pool("any"),))
    nodes = [NODES[int(rank)] for rank in healthy]
    domains = {node.infra_rank: "" for node in NODES}
    return choose(nodes, former, active, policy, domains=domains, least=active, names=NAMES).group


def test_a_fresh_job_takes_the_others() -> None:
    assert chosen("") == (0, 1, 2, 3)
    assert chosen("02") == (1, 3, 4, 5)


def test_one_that_is_needed_is_taken_and_no_more() -> None:
    assert chosen("012") == (3, 4, 5, 0)
    assert chosen("5", (0, 1, 2, 3), healthy="01235") == (0, 1, 2, 3)


def test_a_vacancy_gets_another_standby_first() -> None:
    assert chosen("4", (0, 1, 2, 3), healthy="02345") == (0, 5, 2, 3)
    assert chosen("4", (0, 1, 2, 3), healthy="0234") == (0, 4, 2, 3)


def test_one_that_trains_keeps_its_place() -> None:
    assert chosen("2", (0, 1, 2, 3)) == (0, 1, 2, 3)


def test_of_another_domain_rather_than_one_to_avoid() -> None:
    nodes = [FitNode(0, "n0", "a"), FitNode(2, "n2", "a"), FitNode(3, "n3", "b")]
    domains = {0: "a", 1: "a", 2: "a", 3: "b"}
    policy = Placement(avoid=("n2",))
    assert choose(nodes, (0, 1), 2, policy, domains=domains, least=2, names=NAMES).group == (0, 3)


def choose_with(case: Case, avoid: tuple[str, ...]) -> Assignment:
    names = [node.name for node in case.known]
    policy = replace(case.policy, avoid=avoid)
    return choose(case.healthy, case.former, case.active, policy, domains=case.domains, least=case.least, names=names)


@given(cases(), AVOID)
def test_no_group_gets_lost_or_smaller(case: Case, avoid: tuple[str, ...]) -> None:
    plain, found = case.assign(), choose_with(case, avoid)
    if not case.policy.pools or all(pool.reserve == 0 for pool in case.policy.pools):
        assert (found.group is None) == (plain.group is None)
    if found.group is not None:
        assert len(found.group) == len(set(found.group))
        assert {*found.group} <= {node.infra_rank for node in case.healthy}
        assert case.least <= len(found.group) <= case.active


@given(cases(), AVOID)
def test_one_to_avoid_is_new_only_where_the_others_do_not_suffice(case: Case, avoid: tuple[str, ...]) -> None:
    found = choose_with(case, avoid)
    bad = {node.infra_rank for node in case.healthy if node.name in avoid} - set(case.former)
    if found.group is not None and bad & set(found.group):
        others = replace(case, healthy=tuple(node for node in case.healthy if node.infra_rank not in bad))
        assert len(others.assign().group or ()) < len(found.group)


@given(cases())
def test_without_any_it_is_the_same(case: Case) -> None:
    assert choose_with(case, ()) == case.assign()

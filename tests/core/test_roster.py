"""Tests, exhaustively for small lists, that majorities intersect, and that no two nodes share a term."""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.machines import job

from ft_supervisor.core.protocol.model import NO_PROMISE, Memory, Roster
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.quorum.roster import (
    candidates,
    coordinator_of,
    first_candidate,
    first_roster,
    first_term,
    is_candidate,
    majority,
    next_term,
    quorum,
    survivable_losses,
)


def subsets(ranks: Iterable[int]) -> Iterator[set[int]]:
    ranks = list(ranks)
    return map(set, chain.from_iterable(combinations(ranks, size) for size in range(len(ranks) + 1)))


@pytest.mark.parametrize("size", range(1, 8))
def test_any_two_majorities_meet_and_one_of_two_halves_is_one(size: int) -> None:
    members = list(range(size))
    majorities = [some for some in subsets(members) if majority(members, some)]
    assert all(one & other for one in majorities for other in majorities)
    for some in subsets(members):
        assert majority(members, some) != majority(members, set(members) - some)


def test_no_nodes_are_no_majority_not_even_of_an_empty_list() -> None:
    assert not majority([], set())
    assert not majority([], {1})
    assert not majority([1], set())


def test_strangers_do_not_count() -> None:
    assert not majority([0, 1, 2], {0, 7, 8, 9})


def test_half_of_them_are_enough_with_the_first_of_the_list() -> None:
    assert majority([3, 1], {3})
    assert not majority([3, 1], {1})
    assert majority([3, 1, 0, 2], {3, 2})
    assert not majority([3, 1, 0, 2], {1, 0})


def lists(ranks: int) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(permutations(range(ranks), size) for size in range(1, ranks + 1))


def test_a_quorum_for_a_change_meets_every_majority_of_both_lists() -> None:
    """For any two lists: every majority of either one contains a node of each quorum for the change."""
    for former in ((0,), (0, 1), (1, 0), (0, 1, 2), (2, 0, 1), (0, 1, 2, 3)):
        for members in lists(4):
            joint = Roster(0, 1, format_ranks(members), format_ranks(former))
            both = [some for some in subsets(range(4)) if quorum(joint, some)]
            assert both
            for list_ in (members, former):
                majorities = [some for some in subsets(range(4)) if majority(list_, some)]
                assert all(one & other for one in both for other in majorities)


def test_a_roster_without_a_former_one_asks_only_its_own() -> None:
    assert quorum(Roster(0, 1, "0-2"), {0, 1})
    assert not quorum(Roster(0, 1, "0-2", "3-5"), {0, 1})
    assert quorum(Roster(0, 1, "0-2", "3-5"), {0, 1, 3, 4})


@pytest.mark.parametrize("nodes", range(1, 7))
def test_terms_rise_and_belong_to_one_node(nodes: int) -> None:
    a_job = job(nodes, 1)
    for above in range(NO_PROMISE, 4 * nodes):
        terms = [next_term(above, infra_rank, a_job) for infra_rank in range(nodes)]
        assert sorted(terms) == list(range(above + 1, above + 1 + nodes))
        assert [coordinator_of(term, a_job) for term in terms] == list(range(nodes))


def test_the_term_of_a_fresh_job_belongs_to_its_first_candidate() -> None:
    for list_ in (3, (0, 1), (2, 0)):
        a_job = job(4, 1, candidates=list_)
        assert coordinator_of(first_term(a_job), a_job) == first_candidate(a_job)


def test_the_list_of_candidates_slides_on_as_members_go() -> None:
    a_job = job(5, 1)
    assert first_roster(a_job) == Roster(-1, 0, "0-4")
    assert candidates(a_job, None) == (0, 1, 2)
    assert candidates(a_job, Roster(0, 2, "1,3-4,0")) == (1, 3, 4)
    assert is_candidate(a_job, 3, Memory(roster=Roster(0, 2, "1,3-4,0")))
    assert not is_candidate(a_job, 0, Memory(roster=Roster(0, 2, "1,3-4,0")))
    assert not is_candidate(a_job, 3, Memory())


def test_a_given_list_of_candidates_stays() -> None:
    a_job = job(5, 1, candidates=(4, 2))
    assert candidates(a_job, Roster(0, 2, "0-1")) == (4, 2)


@pytest.mark.parametrize(
    ("nodes", "active", "keepers", "losses"),
    [(1, 1, 3, 0), (2, 1, 3, 0), (3, 2, 3, 1), (4, 2, 3, 1), (5, 2, 3, 2), (7, 2, 3, 2), (7, 2, 5, 3), (8, 8, 3, 0)],
)
def test_how_many_may_die_at_once(nodes: int, active: int, keepers: int, losses: int) -> None:
    assert survivable_losses(job(nodes, active, candidates=keepers)) == losses


@given(st.integers(1, 6), st.data())
def test_a_job_survives_survivable_losses_and_not_one_more(nodes: int, data: st.DataObject) -> None:
    """After any `survivable_losses` deaths a majority, a candidate and enough nodes to train are left. For one death
    more, there is a choice of nodes after which they are not."""
    active = data.draw(st.integers(1, nodes))
    a_job = job(nodes, active, candidates=data.draw(st.integers(1, 4)))

    def survives(lost: set[int]) -> bool:
        left = set(range(nodes)) - lost
        return majority(range(nodes), left) and bool(left & set(candidates(a_job, None))) and len(left) >= active

    losses = survivable_losses(a_job)
    assert all(survives(lost) for lost in subsets(range(nodes)) if len(lost) <= losses)
    assert not all(survives(lost) for lost in subsets(range(nodes)) if len(lost) == losses + 1)

"""Tests the model's types: the order of cycles, exit codes, sentences, and memories that only grow."""

import pytest

from ft_supervisor.core.protocol.model import Cycle, Failure, Memory, Outcome, Roster, Timeouts, Verdict


def test_cycles_are_ordered_as_pairs() -> None:
    assert sorted([Cycle(1, 0), Cycle(0, 9), Cycle(0, 10)]) == [Cycle(0, 9), Cycle(0, 10), Cycle(1, 0)]
    assert str(Cycle(2, 31)) == "2.31"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(Outcome.SUCCESS, 0), (Outcome.FAILED, 1), (Outcome.INTERRUPTED, 75), (Outcome.CANCELLED, 130)],
)
def test_the_verdict_is_the_exit_code(outcome: Outcome, code: int) -> None:
    assert Verdict(outcome, "why").exit_code == code


def test_only_success_is_0() -> None:
    assert [outcome for outcome in Outcome if Verdict(outcome, "").exit_code == 0] == [Outcome.SUCCESS]


def test_the_later_memory_counts() -> None:
    """Only one agent at a time acts for the node, and its order to remember has the whole memory."""
    known = Memory(2, newest=Cycle(0, 1), succeeded=Cycle(0, 1))
    later = Memory(2, newest=Cycle(0, 2), failures=(Failure(0, 0, 1),))
    assert known.newer(later) == later


def test_the_first_verdict_that_a_node_learnt_stays() -> None:
    first, second = Verdict(Outcome.SUCCESS, "first"), Verdict(Outcome.FAILED, "second")
    assert Memory().newer(Memory(verdict=first)).verdict == first
    assert Memory(verdict=first).newer(Memory(3)) == Memory(3, verdict=first)
    assert Memory(verdict=first).newer(Memory(verdict=second)).verdict == first


def test_a_roster_of_other_text_than_ranks_is_refused() -> None:
    assert Roster(3, 1, "0-2", "0-3").stamp == (3, 1)
    for members, former in (("x", ""), ("0-2", "x")):
        with pytest.raises(ValueError, match="no range of ranks"):
            Roster(3, 1, members, former)


def test_the_default_timeouts_let_a_node_fence_before_it_is_given_up() -> None:
    timeouts = Timeouts()
    assert timeouts.coordinator < timeouts.fence < timeouts.node_lost
    assert timeouts.probe < timeouts.coordinator

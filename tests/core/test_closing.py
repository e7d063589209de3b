"""How a verdict becomes the job's: a majority keeps it, then it is written down, then claimed, then told."""

import pytest
from tests.core.machines import job

from ft_supervisor.core.actions import Conclude, Record
from ft_supervisor.core.closing import Closing
from ft_supervisor.core.model import Outcome, Roster, Verdict

ONE, OTHER = Verdict(Outcome.SUCCESS, "one"), Verdict(Outcome.FAILED, "other")
INTERRUPTED = Verdict(Outcome.INTERRUPTED, "time")
ROSTER = Roster(0, 1, "0-4")
LOST = "4"


def proposed() -> Closing:
    closing = Closing()
    closing.propose(ONE)
    return closing


def test_the_order() -> None:
    closing = proposed()
    for infra_rank in (3, 1):
        assert (closing.keep(infra_rank, ROSTER), closing.verdict) == (None, None)
    assert (closing.keep(2, ROSTER), closing.verdict) == (ONE, None)
    assert (closing.settle(ONE, LOST), closing.verdict) == (Record(ONE, LOST), ONE)
    assert closing.keep(4, ROSTER) is None
    assert (closing.claimed, closing.closed) == (False, False)
    assert closing.recorded(ONE) == Conclude(ONE)
    assert (closing.claimed, closing.closed) == (True, False)
    closing.close(ONE, 7.0)
    assert (closing.claimed, closing.closed) == (True, True)


def test_one_node_counts_once_and_a_stranger_never() -> None:
    closing = proposed()
    for infra_rank in (1, 1, 1, 7, 8, 9, 2):
        assert closing.keep(infra_rank, ROSTER) is None
    assert closing.keep(4, ROSTER) == ONE


def test_a_change_of_members_under_way_needs_both_majorities() -> None:
    closing = proposed()
    joint = Roster(0, 2, "0-2", former="2-6")
    for infra_rank in (0, 1, 3):
        assert closing.keep(infra_rank, joint) is None
    assert closing.keep(4, joint) is None
    assert closing.keep(5, joint) == ONE


def test_what_nobody_proposed_cannot_be_kept() -> None:
    closing = Closing()
    for infra_rank in range(5):
        assert closing.keep(infra_rank, ROSTER) is None
    assert closing.verdict is None


def test_who_knows_the_verdict_needs_no_vote_and_the_first_one_stays() -> None:
    closing = proposed()
    assert closing.settle(OTHER, "") == Record(OTHER, "")
    assert closing.settle(ONE, "") is None
    for infra_rank in range(5):
        assert closing.keep(infra_rank, ROSTER) is None
    assert closing.verdict == OTHER


def test_the_file_counts_before_what_was_settled_and_the_key_before_the_file() -> None:
    closing = proposed()
    closing.settle(ONE, "")
    assert closing.recorded(OTHER) == Conclude(OTHER)
    assert closing.verdict == OTHER
    assert closing.recorded(ONE) is None
    closing.close(ONE, 7.0)
    assert closing.verdict == ONE


def test_a_file_that_nobody_asked_for_is_nothing() -> None:
    closing = proposed()
    assert closing.recorded(ONE) is None
    assert not closing.claimed


@pytest.mark.parametrize(
    ("verdict", "bound"), [(ONE, 3.0), (OTHER, 3.0 + 30.0 + 1.0), (INTERRUPTED, 3.0 + 120.0 + 1.0)]
)
def test_nodes_get_the_time_to_end_their_workers(verdict: Verdict, bound: float) -> None:
    closing = proposed()
    assert not closing.is_over(job(), 1e9)
    closing.close(verdict, 7.0)
    assert not closing.is_over(job(), 7.0 + bound - 0.1)
    assert closing.is_over(job(), 7.0 + bound)

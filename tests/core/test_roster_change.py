"""Tests changes of the roster: a majority of both rosters keeps every step before the next step begins."""

from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.protocol.model import Roster
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.core.quorum.roster import majority
from ft_supervisor.core.quorum.roster_change import RosterChange

FIRST = Roster(-1, 0, "0-3")


def fresh() -> RosterChange:
    change = RosterChange(FIRST)
    change.begin()
    return change


def test_the_roster_of_a_fresh_job_needs_no_vote() -> None:
    change = fresh()
    assert not change.pending
    assert change.eligible == {0, 1, 2, 3}
    assert change.change(0, range(4)) is None


def test_both_lists_are_asked_and_then_the_new_one_alone() -> None:
    change = fresh()
    joint = Roster(0, 1, "0-1,4", former="0-3")
    assert change.change(0, [0, 1, 4]) == joint
    assert change.eligible == {0, 1}  # a node that is removed gets no work any more, an added one none yet
    assert change.keep(4, joint.stamp) is None
    assert change.keep(1, joint.stamp) is None
    final = Roster(0, 2, "0-1,4")
    assert change.keep(0, joint.stamp) == final
    assert change.eligible == {0, 1, 4}
    assert change.keep(4, final.stamp) is None
    assert change.change(0, [0, 1]) is None  # one after the other
    assert change.keep(0, final.stamp) is None
    assert not change.pending
    assert change.roster == final


def test_one_change_at_a_time() -> None:
    change = fresh()
    assert change.change(0, [0, 1, 2]) is not None
    assert change.change(0, [0, 1]) is None
    assert change.roster.members == "0-2"


def test_old_and_repeated_answers_change_nothing() -> None:
    change = fresh()
    joint = change.change(0, [0, 1, 2])
    assert joint is not None
    for _ in range(4):
        assert change.keep(1, joint.stamp) is None
        assert change.keep(0, FIRST.stamp) is None
        assert change.keep(0, (0, 2)) is None
    assert change.keep(0, joint.stamp) == Roster(0, 2, "0-2")
    for rank in (0, 1, 2):
        assert change.keep(rank, joint.stamp) is None
    assert change.pending


def test_a_successor_goes_on_from_what_it_finds() -> None:
    change = RosterChange(Roster(0, 1, "0-1,4", former="0-3"))
    assert change.take_over(5) == Roster(5, 1, "0-1,4", former="0-3")
    assert change.pending
    assert change.eligible == set()  # no node gets work until a majority keeps the roster
    assert change.change(5, [0, 1]) is None
    change.keep(0, (5, 1))
    change.keep(4, (5, 1))
    assert change.keep(1, (5, 1)) == Roster(5, 2, "0-1,4")
    assert change.eligible == {0, 1, 4}


def test_a_successor_that_finds_no_change_still_proposes_the_roster() -> None:
    change = RosterChange(Roster(0, 2, "0-2"))
    assert change.take_over(4) == Roster(4, 2, "0-2")
    change.keep(0, (4, 2))
    assert change.eligible == set()
    assert change.keep(2, (4, 2)) is None
    assert change.eligible == {0, 1, 2}
    assert not change.pending


@given(st.data())
def test_every_majority_has_the_roster_of_all_nodes_that_may_work(data: st.DataObject) -> None:
    """At any time, every majority of a roster that a successor may find to be the newest contains a node that keeps the
    roster of all nodes that may get work."""
    change, term = fresh(), 0
    keeps: dict[int, Roster] = dict.fromkeys(range(6), FIRST)
    mailed = [FIRST]
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            members = data.draw(st.lists(st.integers(0, 5), unique=True, min_size=1))
            proposal = change.change(term, members)
        else:
            rank = data.draw(st.integers(0, 5))
            roster = data.draw(st.sampled_from(mailed))
            if roster.stamp >= keeps[rank].stamp:
                keeps[rank] = roster
            proposal = change.keep(rank, roster.stamp) if keeps[rank] == roster else None
        if proposal is not None:
            assert proposal.stamp > mailed[-1].stamp
            mailed.append(proposal)
        for found in set(keeps.values()):
            keepers = {rank for rank, kept in keeps.items() if kept.stamp <= found.stamp}
            if majority(parse_ranks(found.members), keepers) and (
                not found.former or majority(parse_ranks(found.former), keepers)
            ):  # a successor may see nothing newer than this one
                assert change.eligible <= set(parse_ranks(found.members)), (
                    found,
                    change.roster,
                    format_ranks(change.eligible),
                )

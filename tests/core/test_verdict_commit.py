"""Tests how a verdict becomes the job's: proposed, decided by a majority, written, claimed and sent."""

import pytest
from tests.core.machines import decided, job

from ft_supervisor.core.coordinator.verdict_commit import FILE_BOUND, STAGES, Stage, VerdictCommit
from ft_supervisor.core.protocol.actions import Announce, ClaimClose
from ft_supervisor.core.protocol.coordinator_facts import VerdictFileHangs
from ft_supervisor.core.protocol.model import Outcome, Roster, Verdict
from ft_supervisor.core.protocol.summary import Summary
from ft_supervisor.core.transitions import InvalidState

ONE, OTHER = Verdict(Outcome.SUCCESS, "one"), Verdict(Outcome.FAILED, "other")
INTERRUPTED = Verdict(Outcome.INTERRUPTED, "time")
ROSTER = Roster(0, 1, "0-4")
LOST = "4"
NOTHING = Summary()


def proposed() -> VerdictCommit:
    commit = VerdictCommit()
    commit.propose(ONE, 0.0)
    return commit


def test_the_order() -> None:
    commit = proposed()
    assert (commit.stage,) == (Stage.PROPOSED,)
    for infra_rank in (3, 1):
        assert (commit.keep(infra_rank, ROSTER), commit.verdict) == (None, None)
    assert (commit.keep(2, ROSTER), commit.verdict) == (ONE, None)
    assert commit.decide(ONE, LOST, NOTHING, 1.0) == decided(ONE, LOST)
    assert (commit.verdict, commit.stage) == (ONE, Stage.DECIDED)
    assert commit.keep(4, ROSTER) is None
    assert commit.written(ONE, 2.0) == [ClaimClose(ONE)]
    assert (commit.stage,) == (Stage.WRITTEN,)
    commit.close(ONE, 7.0)
    assert commit.stage is Stage.CLAIMED
    commit.validate()


def test_one_node_counts_once_and_a_stranger_never() -> None:
    commit = proposed()
    for infra_rank in (1, 1, 1, 7, 8, 9, 2):
        assert commit.keep(infra_rank, ROSTER) is None
    assert commit.keep(4, ROSTER) == ONE


def test_a_change_of_members_under_way_needs_both_majorities() -> None:
    commit = proposed()
    joint = Roster(0, 2, "0-2", former="2-6")
    for infra_rank in (0, 1, 3):
        assert commit.keep(infra_rank, joint) is None
    assert commit.keep(4, joint) is None
    assert commit.keep(5, joint) == ONE


def test_without_a_proposal_no_verdict_can_be_kept() -> None:
    commit = VerdictCommit()
    for infra_rank in range(5):
        assert commit.keep(infra_rank, ROSTER) is None
    assert commit.verdict is None


def test_a_decided_verdict_needs_no_vote_and_the_first_one_stays() -> None:
    commit = proposed()
    assert commit.decide(OTHER, "", NOTHING, 1.0) == decided(OTHER, "")
    assert commit.decide(ONE, "", NOTHING, 1.0) == []
    for infra_rank in range(5):
        assert commit.keep(infra_rank, ROSTER) is None
    assert commit.verdict == OTHER


def test_the_file_counts_before_what_was_decided_and_the_key_before_the_file() -> None:
    commit = proposed()
    commit.decide(ONE, "", NOTHING, 1.0)
    assert commit.written(OTHER, 2.0) == [ClaimClose(OTHER)]
    assert commit.verdict == OTHER
    assert commit.written(ONE, 2.0) == []
    commit.close(ONE, 7.0)
    assert commit.verdict == ONE


def test_a_file_that_was_not_to_be_written_changes_nothing() -> None:
    commit = proposed()
    assert commit.written(ONE, 1.0) == []
    assert commit.stage is Stage.PROPOSED


def test_a_file_system_that_hangs_does_not_hold_the_verdict_up() -> None:
    commit = proposed()
    commit.decide(ONE, "", NOTHING, 1.0)
    assert commit.tick(1.0 + FILE_BOUND - 0.1) == []
    assert commit.tick(1.0 + FILE_BOUND) == [Announce(VerdictFileHangs()), ClaimClose(ONE)]
    assert commit.stage is Stage.WRITTEN
    assert commit.tick(1.0 + 2 * FILE_BOUND) == []
    assert commit.written(OTHER, 9.0) == [] and commit.verdict == ONE  # it has come too late


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.DECIDED])
def test_only_a_decided_verdict_waits_for_its_file(stage: Stage) -> None:
    commit = proposed()
    commit._stage, commit.verdict = stage, ONE
    assert commit.tick(1e9) == []


def test_a_stage_that_the_table_lacks_raises() -> None:
    for former in Stage:
        for stage in Stage:
            commit = proposed()
            commit._stage = former
            if stage in STAGES[former]:
                commit._become(stage, 1.0)
                assert commit.stage is stage
            else:
                with pytest.raises(InvalidState):
                    commit._become(stage, 1.0)


@pytest.mark.parametrize(
    ("verdict", "bound"), [(ONE, 3.0), (OTHER, 3.0 + 30.0 + 1.0), (INTERRUPTED, 3.0 + 120.0 + 1.0)]
)
def test_nodes_get_the_time_to_end_their_workers(verdict: Verdict, bound: float) -> None:
    commit = proposed()
    assert not commit.is_over(job(), 1e9)
    commit.decide(verdict, "", NOTHING, 1.0)
    commit.written(verdict, 2.0)
    commit.close(verdict, 7.0)
    assert not commit.is_over(job(), 7.0 + bound - 0.1)
    assert commit.is_over(job(), 7.0 + bound)

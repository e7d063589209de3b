"""Tests the decisions of the last deed: events in, actions out. tests/daemon/test_batch.py has a real daemon."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.machines import TIMEOUTS, deeds, job, lines

from ft_supervisor.core.daemon.last_deed import HOST_BOUND, SIGNAL_BOUND, LastDeed, Step
from ft_supervisor.core.daemon.leaving import LATE_BOUND, Leaving
from ft_supervisor.core.protocol.actions import (
    AskBatchHost,
    CompleteJob,
    FinishFiles,
    ForbidRequeue,
    KillLeftovers,
    Leave,
    RequeueJob,
    StopCompleting,
    WriteComment,
)
from ft_supervisor.core.protocol.events import (
    BatchHost,
    BatchHostAnswered,
    DaemonEvent,
    Deed,
    DeedDone,
    InBatchJob,
    NoVerdict,
    Signalled,
    Tick,
    VerdictFileFound,
)
from ft_supervisor.core.protocol.model import KILL_BOUND, Accepted, Again, Outcome, Verdict
from ft_supervisor.core.protocol.orders import VerdictDecided
from ft_supervisor.core.protocol.settings import Accounting
from ft_supervisor.core.protocol.summary import Summary

SUCCESS = Verdict(Outcome.SUCCESS, "trained")
FAILED = Verdict(Outcome.FAILED, "budget spent")
REQUEUE = Verdict(Outcome.INTERRUPTED, "preempted", Again.REQUEUE)
COMMENTED = DeedDone(Deed.COMMENT)
FORBIDDEN = DeedDone(Deed.FORBID_REQUEUE)
COMPLETED = DeedDone(Deed.COMPLETE)
SIGTERM = Signalled("SIGTERM")


def answer(host: BatchHost | None) -> BatchHostAnswered:
    return BatchHostAnswered(host, "" if host else "Unable to contact slurm controller")


class Play:
    """A last deed on node `here` of n0 to n2, and its clock."""

    def __init__(
        self, verdict: Verdict = SUCCESS, lost: str = "", here: str = "n1", host: str = "n0", *, deputy: bool = False
    ) -> None:
        self.now = 100.0
        self.logged: list[str] = []
        batch = InBatchJob(1, host)
        self.deed = LastDeed(job(3, 1), here, batch, VerdictDecided(verdict, lost, Summary(3)), deputy=deputy)
        self.began = deeds(self.deed.begin(self.now))

    def feed(self, *events: DaemonEvent) -> list[object]:
        answers: list[object] = []
        for event in events:
            actions = self.deed.handle(event, self.now)
            self.deed.validate()
            self.logged += lines(actions)
            answers += deeds(actions)
        return answers

    def wait(self, seconds: float) -> list[object]:
        self.now += seconds
        return self.feed(Tick())

    def decided(self, *answers: DaemonEvent) -> list[object]:
        """Let these answers arrive, and those to the comment and against a requeue; return the actions."""
        return self.feed(*answers, COMMENTED, FORBIDDEN)


@pytest.mark.parametrize(
    ("word", "lost", "here", "ours"),
    [
        (BatchHost.MEMBER, "", "n1", False),
        (BatchHost.MEMBER, "0", "n1", True),  # Slurm has not noticed yet
        (BatchHost.MEMBER, "2", "n1", False),
        (BatchHost.SILENT, "", "n1", True),
        (BatchHost.SILENT, "0", "n1", True),
        (BatchHost.GONE, "", "n1", True),
        (BatchHost.GONE, "0", "n1", True),
        (BatchHost.NONE, "", "n1", False),
        (BatchHost.NONE, "0", "n1", True),  # by this answer there is nothing to complete
        (None, "", "n1", False),
        (None, "0", "n1", True),
        # On the batch host itself its script waits for us, even if our own agent is gone.
        (BatchHost.MEMBER, "0", "n0", False),
        (BatchHost.SILENT, "0", "n0", False),
        (BatchHost.SILENT, "", "n0", False),
        (BatchHost.GONE, "", "n0", True),
        (BatchHost.GONE, "0", "n0", True),
        (BatchHost.NONE, "0", "n0", False),
        (None, "0", "n0", False),
    ],
)
def test_which_node_ends_the_job(word: BatchHost | None, lost: str, here: str, ours: bool) -> None:
    play = Play(lost=lost, here=here)
    end = [CompleteJob(0, host_lost=lost == "0" and here == "n1")] if ours else []
    assert play.decided(answer(word)) == [ForbidRequeue(0), *end]
    assert play.deed.over == (not ours)


def test_a_host_outside_of_the_step_is_no_lost_node() -> None:
    play = Play(lost="0-1", here="n0", host="login")
    assert play.decided(answer(BatchHost.MEMBER)) == [ForbidRequeue(0)]


def test_the_question_is_asked_while_the_comment_is_written() -> None:
    play = Play()
    assert play.began == [AskBatchHost(), WriteComment("success, 3 cycles", "success")]


def test_the_policy_may_forbid_the_comment() -> None:
    a_job = job(3, 1)
    a_job = replace(a_job, settings=replace(a_job.settings, accounting=Accounting(comment=False)))
    deed = LastDeed(a_job, "n1", InBatchJob(1, "n0"), VerdictDecided(FAILED), deputy=False)
    assert deed.begin(0.0) == [AskBatchHost(), ForbidRequeue(1)]


def test_a_comment_that_slurm_does_not_take_is_no_hindrance() -> None:
    assert Play(FAILED).feed(DeedDone(Deed.COMMENT, done=False)) == [ForbidRequeue(1)]


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_its_bound() -> None:
    play = Play()
    assert play.decided() == [ForbidRequeue(0)]
    assert play.deed.due == play.now + HOST_BOUND
    assert play.wait(HOST_BOUND - 0.1) == []
    assert (play.deed.over, play.wait(0.1), play.deed.over) == (False, [], True)
    assert play.logged == ["batch_host_unknown"]


def test_a_host_that_the_coordinator_has_lost_needs_no_answer() -> None:
    assert Play(lost="0").decided() == [ForbidRequeue(0), CompleteJob(0, host_lost=True)]


def test_a_job_that_slurm_requeues_is_not_completed() -> None:
    play = Play(REQUEUE, lost="0")
    assert play.decided() == [ForbidRequeue(75), RequeueJob()]
    assert play.feed(DeedDone(Deed.REQUEUE)) == [] and play.deed.over


def test_a_job_that_slurm_does_not_requeue_is_completed() -> None:
    play = Play(REQUEUE, lost="0")
    play.decided()
    assert play.feed(DeedDone(Deed.REQUEUE, done=False)) == [CompleteJob(75, host_lost=True)]


def test_a_late_answer_of_a_former_step_changes_nothing() -> None:
    play = Play()
    assert play.feed(FORBIDDEN, COMPLETED) == []
    assert play.deed.step is Step.COMMENTING


def test_a_job_that_was_ended_is_left() -> None:
    play = Play(FAILED, lost="0")
    play.decided()
    assert play.wait(300.0) == [] and not play.deed.over
    assert play.feed(COMPLETED) == [] and play.deed.over


def test_a_signal_leaves_the_completion_two_seconds() -> None:
    play = Play(lost="0")
    play.decided()
    assert play.feed(SIGTERM) == []
    assert play.deed.due == play.now + SIGNAL_BOUND
    assert play.wait(SIGNAL_BOUND - 0.1) == [] and not play.deed.over
    assert play.wait(0.1) == [StopCompleting("SIGTERM came")] and play.deed.over


def test_a_signal_after_the_completion_is_its_consequence() -> None:
    play = Play(lost="0")
    play.decided()
    assert play.feed(SIGTERM, COMPLETED) == [] and play.deed.over


def test_a_signal_before_the_completion_counts_from_its_beginning() -> None:
    play = Play(lost="0")
    assert play.feed(SIGTERM, COMMENTED) == [ForbidRequeue(0)]
    play.now += 3.0
    assert play.feed(FORBIDDEN) == [CompleteJob(0, host_lost=True)]
    assert play.wait(SIGNAL_BOUND) == [StopCompleting("SIGTERM came")]


# -- the deputy


def test_a_deputy_waits_for_the_last_grace_of_other_nodes() -> None:
    play = Play(FAILED, deputy=True)
    assert play.began == [AskBatchHost()]
    assert play.feed(answer(BatchHost.GONE)) == [] and play.logged == ["stands_in"]
    seconds = TIMEOUTS.stop_grace + KILL_BOUND + TIMEOUTS.close_grace
    assert play.wait(seconds - 0.1) == []
    assert play.wait(0.1) == [ForbidRequeue(1)]
    assert play.feed(FORBIDDEN) == [CompleteJob(1, host_lost=False)]


def test_a_deputy_waits_for_no_grace_after_success() -> None:
    play = Play(deputy=True)
    play.feed(answer(BatchHost.GONE))
    assert play.wait(TIMEOUTS.close_grace) == [ForbidRequeue(0)]


def test_a_signal_ends_a_deputys_waiting_and_not_its_completion() -> None:
    play = Play(FAILED, deputy=True)
    assert play.feed(answer(BatchHost.SILENT), SIGTERM) == [ForbidRequeue(1)]
    assert play.feed(FORBIDDEN) == [CompleteJob(1, host_lost=False)]
    assert play.wait(300.0) == []


def test_a_deputy_requeues() -> None:
    play = Play(REQUEUE, deputy=True)
    assert play.feed(answer(BatchHost.GONE), SIGTERM, FORBIDDEN) == [ForbidRequeue(75), RequeueJob()]
    assert play.feed(DeedDone(Deed.REQUEUE, done=False)) == [CompleteJob(75, host_lost=False)]


@pytest.mark.parametrize("host", [BatchHost.MEMBER, BatchHost.NONE, None])
def test_a_deputy_is_not_needed(host: BatchHost | None) -> None:
    play = Play(deputy=True)
    assert play.feed(answer(host)) == [] and play.deed.over


# -- who has a last deed

LEAVE = Leave(0, SUCCESS, "over")
BATCH = InBatchJob(1, "n0")


def leaving(
    leave: Leave = LEAVE,
    batch: InBatchJob | None = BATCH,
    closed: VerdictDecided | None = None,
    accepted: Accepted | None = None,
) -> tuple[Leaving, list[object]]:
    """Return a machine of a daemon on n1 that leaves, and its first actions."""
    machine = Leaving(job(3, 1), "n1", leave, batch, closed, accepted)
    return machine, deeds(machine.begin(0.0))


def test_the_closer_leaves_when_its_last_deed_is_done() -> None:
    machine, began = leaving(closed=VerdictDecided(SUCCESS))
    comment = WriteComment("success", "success")
    assert began == [FinishFiles(), KillLeftovers(), AskBatchHost(), comment]
    todo: list[object] = []
    for event in (COMMENTED, answer(BatchHost.MEMBER), FORBIDDEN):
        todo += deeds(machine.handle(event, 1.0))
    assert todo == [ForbidRequeue(0), LEAVE]


@pytest.mark.parametrize(
    ("batch", "closed", "accepted"),
    [
        (None, VerdictDecided(SUCCESS), Accepted(0, SUCCESS, deputy=True)),
        (BATCH, None, Accepted(0, SUCCESS, deputy=False)),
        (BATCH, None, None),
    ],
)
def test_no_other_node_asks_slurm(
    batch: InBatchJob | None, closed: VerdictDecided | None, accepted: Accepted | None
) -> None:
    assert leaving(batch=batch, closed=closed, accepted=accepted)[1] == [FinishFiles(), LEAVE]


def test_a_deputy_that_comes_late_does_what_the_verdict_of_the_file_says() -> None:
    machine, _ = leaving(Leave(75, None, "nobody"), accepted=Accepted(0, FAILED, deputy=True))
    assert deeds(machine.handle(VerdictFileFound(FAILED), 1.0)) == [FinishFiles(), KillLeftovers(), AskBatchHost()]


def test_a_deputy_that_finds_no_verdict_has_nothing_to_do() -> None:
    leave = Leave(75, None, "nobody")
    machine, _ = leaving(leave, accepted=Accepted(0, FAILED, deputy=True))
    assert deeds(machine.handle(NoVerdict(), 1.0)) == [FinishFiles(), leave]


def test_a_signal_during_the_last_look_is_heeded_by_the_last_deed() -> None:
    machine, _ = leaving(Leave(75, None, "nobody"), closed=VerdictDecided(FAILED, "0"))
    for event in (SIGTERM, NoVerdict(), COMMENTED, FORBIDDEN):
        machine.handle(event, LATE_BOUND / 2)
    assert machine.due == LATE_BOUND / 2 + SIGNAL_BOUND

"""Tests the summary of a job: counted by the coordinator, and written as one line that has only known facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.machines import TIMEOUTS, Talk, failed, stopped
from tests.core.takeover import Takeover

from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.actions import Tell, WriteVerdict
from ft_supervisor.core.protocol.cost import Cost
from ft_supervisor.core.protocol.model import Cycle, Memory, Outcome, Verdict
from ft_supervisor.core.protocol.orders import ORDERS, VerdictDecided
from ft_supervisor.core.protocol.summary import MOST_NAMES, MOST_REASON, Summary, Tally, head, line

SUCCESS = Verdict(Outcome.SUCCESS, "done")


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        (Summary(3, 1, 0, ("n3",), 42.4), "success, 3 cycles, 1 node replaced (n3), 42 s lost"),
        (Summary(1), "success, 1 cycle"),
        (Summary(), "success"),
        (Summary(2, lost=0.4), "success, 2 cycles"),
        (Summary(2, 0, 2, ("n3", "n4"), 9.0), "success, 2 cycles, 2 nodes left out (n3,n4), 9 s lost"),
        (Summary(2, 1, 1, ("n3", "n4")), "success, 2 cycles, 1 node replaced and 1 node left out (n3,n4)"),
        (Summary(9, 11, 0, tuple("abcdefgh")), "success, 9 cycles, 11 nodes replaced (a,b,c,d,e,f,g,h and 3 more)"),
        (Summary(4, takeovers=1), "success, 4 cycles, coordinator replaced"),
        (
            Summary(4, 1, 0, ("n3",), 7.0, takeovers=2, exact=False),
            "success, 4 cycles, coordinator replaced, at least 1 node replaced (n3), at least 7 s lost",
        ),
        (Summary(2, lost=7.0, takeovers=1), "success, 2 cycles, coordinator replaced, 7 s lost"),
    ],
)
def test_line(summary: Summary, expected: str) -> None:
    assert line(summary, SUCCESS, "4242.0.0") == expected


@pytest.mark.parametrize(
    ("run_id", "expected"),
    [
        ("4242.0.0", "failed"),
        ("4242.0.2", "failed (restart 2)"),
        ("4242.3.0", "failed (step 3)"),
        ("4242.3.2", "failed (step 3, restart 2)"),
        ("4242", "failed"),
        ("", "failed"),
    ],
)
def test_a_run_that_was_not_the_first_has_its_number_in_the_line(run_id: str, expected: str) -> None:
    verdict = Verdict(Outcome.FAILED, "budget spent")
    assert head(verdict, run_id) == expected
    assert line(Summary(2), verdict, run_id) == f"{expected}, 2 cycles, budget spent"


def test_the_reason_ends_the_line_of_a_job_without_success() -> None:
    reason = "too few nodes: 2 of 3 came within 60 s; n2 never came"
    assert line(Summary(), Verdict(Outcome.INTERRUPTED, reason), "7.0.0") == f"interrupted, {reason}"
    assert len(line(Summary(), Verdict(Outcome.FAILED, "x" * 500), "7.0.0")) == len("failed, ") + MOST_REASON


def tally() -> Tally:
    return Tally([f"n{rank}" for rank in range(30)])


def test_nodes_that_went() -> None:
    counts = tally()
    counts.started((), (0, 1, 2, 3))
    counts.started((0, 1, 2, 3), (0, 1, 4))  # two went, one came
    assert counts.summary(2, 0, Cost(detection=3.26, starting=1.0)) == Summary(2, 1, 1, ("n2", "n3"), 4.3)
    counts.started((0, 1, 4), (0, 1, 4, 2))  # growing is no replacing
    counts.started((0, 1, 4, 2), (0, 1, 4, 5))  # the same node once more is not counted twice
    assert counts.summary(4, 0, Cost(training=9.0)) == Summary(4, 1, 1, ("n2", "n3"))


GROUPS = st.lists(st.lists(st.integers(0, 29), min_size=1, max_size=12, unique=True), min_size=1, max_size=12)


@given(GROUPS)
def test_a_node_that_left_the_group_is_counted_once(groups: list[list[int]]) -> None:
    counts, former, went = tally(), list[int](), set[int]()
    for group in groups:
        counts.started(former, group)
        went |= set(former) - set(group)
        former = group
    summary = counts.summary(len(groups), 0, Cost())
    assert summary.replaced + summary.dropped == len(went)
    assert set(summary.names) <= {f"n{rank}" for rank in went}
    assert len(summary.names) == min(len(went), MOST_NAMES)
    assert "\n" not in line(summary, SUCCESS, "1.0.0")


# -- as the coordinator counts it


def at_the_end(talk: Talk, verdict: Verdict = SUCCESS) -> Summary:
    """Return the summary with which the verdict's file is written, and that the last order to the daemon repeats."""
    done = talk.held(verdict)
    (write,) = (action for action in done if isinstance(action, WriteVerdict))
    talk.written(verdict)
    told = done + talk.held(verdict) + talk.wait(talk.job.timeouts.close_grace + talk.job.timeouts.stop_grace + 2)
    summaries = {
        each.order.summary for each in told if isinstance(each, Tell) and isinstance(each.order, VerdictDecided)
    }
    assert summaries == {write.summary}
    return write.summary


def test_a_job_without_a_fault() -> None:
    talk = Talk()
    talk.begin()
    assert at_the_end(talk) == Summary(cycles=1)
    assert at_the_end(Talk()) == Summary()  # not even one cycle


def test_a_node_that_dies_and_one_that_crashes() -> None:
    talk = Talk()
    talk.begin()
    talk.wait(10.0)
    talk.silent = {1}
    talk.wait(TIMEOUTS.node_lost)
    for rank in (0, 2):
        talk.hear(stopped(rank))
    talk.wait(1.0)
    lost = at_the_end(talk)
    assert (lost.cycles, lost.replaced, lost.dropped, lost.names, lost.takeovers) == (2, 1, 0, ("n1",), 0)
    assert TIMEOUTS.node_lost <= lost.lost <= TIMEOUTS.node_lost + 2  # from the silence, not from its notice

    talk = Talk()
    talk.begin()
    talk.wait(10.0)
    talk.hear(failed(0))
    talk.wait(3.0)
    for rank in range(3):
        talk.hear(stopped(rank))
    talk.wait(1.0)
    crashed = at_the_end(talk)
    assert (crashed.cycles, crashed.replaced, crashed.names) == (2, 0, ())
    assert 3.0 <= crashed.lost <= 4.0


def test_a_successor_counts_all_cycles_and_its_own_takeover() -> None:
    memories = {rank: Memory(0, newest=Cycle(0, 4), group="0-2") for rank in (0, 1, 2)}
    talk = Takeover(memories=memories, running=())
    talk.take(0, 1, 2)
    summary = at_the_end(talk)
    assert (summary.cycles, summary.takeovers, summary.replaced) == (5, 1, 0)
    assert line(summary, SUCCESS, "1.0.0").startswith("success, 5 cycles, coordinator replaced")


def test_a_summary_makes_no_other_end_of_it() -> None:
    assert VerdictDecided(SUCCESS, "", Summary(3)) == VerdictDecided(SUCCESS)
    assert WriteVerdict(SUCCESS, Summary(3)) == WriteVerdict(SUCCESS)
    sent = codec.decode(codec.encode(VerdictDecided(SUCCESS, "", Summary(3, 1, 0, ("n1",), 2.5))), ORDERS)
    assert sent.summary == Summary(3, 1, 0, ("n1",), 2.5)


def test_the_largest_summary_still_goes_over_the_link() -> None:
    names = tuple(f"{'x' * 250}{i}" for i in range(10_000))
    counts = Tally(names)
    counts.started(range(5000), range(5000, 10_000))
    assert len(codec.encode(VerdictDecided(SUCCESS, "", counts.summary(2, 0, Cost())))) < codec.MAX_BYTES

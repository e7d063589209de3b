"""The effective training time ratio of jobs, what was lost, and the interval between checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history.recordings import recorded

from ft_slurm.records import JobRow
from ft_supervisor.report.efficiency import Efficiency, best_interval, of_job, total, waste


def row(submit: int, start: int | None, end: int | None) -> JobRow:
    return JobRow(7, "7", "COMPLETED", None, None, submit, start, end, 0, "n1", "train", "/", "")


def test_the_ratio_counts_the_queue_of_requeues() -> None:
    history = replace(recorded("crash"), training=60.0)
    found = of_job([row(100, 120, 180), row(180, 220, 280)], [history, history])
    assert (found.queued, found.requeued, found.scheduled, found.available) == (20, 40, 120, 180)
    assert found.training == 120 and found.ettr == pytest.approx(120 / 180)


def test_without_journals_it_is_not_known() -> None:
    for histories in ([], [None], [recorded("crash"), None]):
        found = of_job([row(100, 120, 180)], histories)
        assert found.training is None and found.ettr is None
    assert total([of_job([row(100, 120, 180)], [None])]).available == 0
    assert of_job([row(100, None, None)], []).available == 0


@pytest.mark.parametrize("case", ["crash", "node-lost", "hang"])
def test_the_parts_of_a_recorded_failure(case: str) -> None:
    history = recorded(case)
    found = of_job([row(0, 0, 1000)], [history])
    failed = [cycle for cycle in history.cycles if cycle.loss is not None]
    assert failed and found.failures == len(failed)
    lost = sum(cycle.loss.total or 0.0 for cycle in failed if cycle.loss)
    assert sum(seconds for _, seconds in found.by_cause) == pytest.approx(lost)
    assert sum(seconds for _, seconds in found.by_node) == pytest.approx(lost)
    assert found.between_failures == pytest.approx((found.training or 0) / found.failures)


def test_the_sum() -> None:
    one = of_job([row(0, 10, 110)], [recorded("crash")])
    both = total([one, one, Efficiency(training=None, scheduled=1e9)])
    assert both.available == 2 * one.available and both.failures == 2 * one.failures
    assert both.ettr == pytest.approx(one.ettr)
    assert dict(both.by_cause) == {name: pytest.approx(2 * seconds) for name, seconds in one.by_cause}


@given(st.floats(1, 1e4), st.floats(1e3, 1e7), st.floats(1, 1e6))
def test_no_other_interval_wastes_less(save: float, between: float, other: float) -> None:
    best = best_interval(save, between)
    assert waste(best, save, between) <= waste(other, save, between) + 1e-9

"""The effective training time ratio of jobs, what was lost, and the interval between checkpoints."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history.recordings import CASES, recorded
from tests.report.job_stories import CYCLE, END, a_run, docs_job, row

from ft_supervisor.core.protocol.cost import CycleTimes
from ft_supervisor.history.model import Checkpoint, CycleEnd
from ft_supervisor.report.efficiency import PARTS, Efficiency, Saves, best_interval, interval, total, waste
from ft_supervisor.report.efficiency_text import advice, document
from ft_supervisor.report.job_time import of_job
from ft_supervisor.report.jobs_sources import Listing
from ft_supervisor.report.lost_by import blamed

NOW = 10_000.0


def adds_up(found: Efficiency, available: float) -> None:
    assert set(found.parts) == set(PARTS) and all(seconds >= 0 for seconds in found.parts.values()), found
    assert found.available == pytest.approx(available, abs=0.01)


def test_the_worked_example_of_the_documentation() -> None:
    """docs/jobs.md works it out by hand; each number in its table is compared."""
    records, histories = docs_job()
    found = of_job(records, histories, NOW)
    adds_up(found, 10_000)
    page = Path("docs/jobs.md").read_text()
    told = {name: float(number) for name, number in re.findall(r"^\| `(\w+)` \| ([0-9]+) \|", page, re.MULTILINE)}
    assert told == pytest.approx({name: found.part(name) for name in PARTS if found.part(name) > 0})
    assert found.exact and found.ettr == pytest.approx(0.85) and "8500 / 10000 = 85 %" in page
    assert found.failures == 2 and found.between_failures == pytest.approx(4500)
    advised = interval(found)
    assert advised is not None and (advised.save, advised.every) == pytest.approx((10, 800))
    assert advised.best == pytest.approx(300) and "sqrt(2 * 10 * 4500) = 300" in page
    assert advised.waste == pytest.approx(10 / 800 + 800 / 9000) and advised.least == pytest.approx(1 / 15)
    assert advised.won == pytest.approx((10 / 800 + 800 / 9000 - 1 / 15) * 9000) and "312.5 s" in page


def test_what_the_ends_of_cycles_cost_is_told_by_cause_and_node() -> None:
    records, histories = docs_job()
    found = of_job(records, histories, NOW)
    assert dict(found.by_cause) == pytest.approx({"exit": 650, "requeue": 220})
    assert dict(found.by_node) == pytest.approx({"n3": 650})


@pytest.mark.parametrize("case", CASES)
def test_the_parts_of_a_recorded_run_are_those_of_its_account(case: str) -> None:
    history = recorded(case)
    assert history.cost is not None and history.start is not None
    start, length = int(history.start) - 5, int(history.cost.whole) + 20
    found = of_job([row(start - 60, start, start + length)], [history], start + length)
    adds_up(found, 60 + length)
    assert found.part("queued") == 60
    for name in ("detection", "stop", "starting", "first_start"):
        assert found.part(name) == pytest.approx(getattr(history.cost, name))
    assert sum(seconds for _, seconds in found.by_cause) == pytest.approx(history.cost.lost, abs=0.01)
    assert found.failures == sum(cycle.ended is CycleEnd.FAILED for cycle in history.cycles)


@given(st.lists(st.lists(st.floats(0, 100), min_size=8, max_size=8), min_size=1, max_size=6), st.floats(0, 2000))
def test_the_parts_of_any_run_add_up(moments: list[list[float]], length: float) -> None:
    at, times = 0.0, []
    for number, gaps in enumerate(moments):
        marks = [at := at + gap for gap in gaps]
        began, started, training, happened, ended, stopped, decided, at = marks
        times.append(CycleTimes(number == 0, began, started, training, happened, ended, True, stopped, decided))
    saves = tuple(Checkpoint(number, float(number)) for number in range(0, 3000, 150))
    history = a_run(1000.0, 1000.0 + length, times, saves)
    assert history.cost is not None
    found = of_job([row(900, 1000, 5000)], [history], NOW)
    adds_up(found, 4100)
    repeated = found.part("repeated")
    assert sum(seconds for _, seconds in found.by_cause) == pytest.approx(history.cost.lost + repeated, abs=0.02)
    assert 0 <= (found.ettr or 0.0) <= 1


def test_requeues_are_one_job_and_a_lost_node_is_no_requeue() -> None:
    first, second = a_run(130, 180, [CYCLE]), a_run(230, 290, [CYCLE])
    resized = replace(row(100, 120, 160), state="RESIZING")
    found = of_job([resized, row(100, 160, 180), row(180, 220, 300)], [second, first], NOW)
    assert (found.part("queued"), found.part("requeued")) == (20, 40)
    adds_up(found, 200)
    assert not found.exact, "what the second run did again is not known"


def test_a_job_that_waits_again() -> None:
    waits = replace(row(180, None, None), state="PENDING")
    found = of_job([row(100, 120, 180), waits], [a_run(120, 180, [CYCLE])], 500.0)
    assert found.part("requeued") == 320


def test_a_job_that_runs_is_known_until_its_journal_ends() -> None:
    history = replace(a_run(120, 400, [CYCLE]), ended=None, verdict=None)
    found = of_job([replace(row(100, 120, None), state="RUNNING")], [history], 450.0)
    adds_up(found, 350)
    assert found.part("unknown") == pytest.approx(50) and not found.exact and found.part("outside") == 0


def test_a_journal_that_was_cut_off_makes_the_ratio_an_upper_bound() -> None:
    whole = a_run(120, 400, [CYCLE])
    cut = a_run(120, 200, [CYCLE])
    records = [row(100, 120, 400)]
    found = of_job(records, [replace(cut, ended=None, verdict=None)], NOW)
    assert not found.exact and found.part("unknown") == pytest.approx(200)
    assert (found.ettr or 0.0) >= (of_job(records, [whole], NOW).ettr or 1.0)


def test_a_start_without_journals_beside_one_that_has_them() -> None:
    found = of_job([row(100, 120, 180), row(180, 220, 300)], [a_run(220, 300, [CYCLE])], NOW)
    assert found.part("unknown") == 60 and not found.exact and found.known


def test_without_journals_or_before_the_first_start_nothing_is_known() -> None:
    assert of_job([row(100, 120, 180)], [], NOW).ettr is None
    assert of_job([row(100, None, None)], [], NOW).available == 0
    assert total([of_job([row(100, 120, 180)], [], NOW)]).available == 0
    assert total([]).ettr is None and list(advice(total([]), None, None)) != []
    assert document(Listing([]), None, None)["all"]["ettr"] is None


def test_the_sum() -> None:
    one = of_job(*docs_job(), NOW)
    both = total([one, one, Efficiency(parts={"unknown": 1e9})])
    assert both.available == pytest.approx(2 * one.available) and both.failures == 2 * one.failures
    assert both.ettr == pytest.approx(one.ettr) and both.saves.number == 2 * one.saves.number
    assert dict(both.by_cause) == {name: pytest.approx(2 * seconds) for name, seconds in one.by_cause}


def test_a_last_checkpoint_while_the_cycle_stops_repeats_nothing() -> None:
    saved = Checkpoint(7, END + 5.0)
    assert _repeated(saved) == 0.0
    assert _repeated(Checkpoint(7, END - 30.0)) == pytest.approx(30.0)
    assert _repeated(Checkpoint(7, 1.0)) == pytest.approx(END - 20.0), "none in this cycle: all of its training"


def _repeated(saved: Checkpoint) -> float | None:
    (one,) = blamed(a_run(0, END + 60, [CYCLE], (saved,)), goes_on=True)
    return one.repeated


def test_a_cost_that_is_not_known_is_said() -> None:
    failed = Efficiency(parts={"training": 1000.0}, known=True, failures=2)
    assert interval(failed) is None
    assert "no job tells its checkpoints: checkpoint.step_file" in list(advice(failed, None, None))[-1]
    seen = replace(failed, saves=Saves(number=3, gap=100.0, gaps=1))
    assert "no heartbeats around checkpoints" in list(advice(seen, None, None))[-1]
    given = interval(seen, save=4.0)
    assert given is not None and given.every == 100.0 and given.best == pytest.approx((2 * 4 * 500) ** 0.5)
    assert "--every SECONDS" in list(advice(replace(failed), 4.0, None))[-1]


@given(st.floats(1, 1e4), st.floats(1e3, 1e7), st.floats(1, 1e6))
def test_no_other_interval_wastes_less(save: float, between: float, other: float) -> None:
    best = best_interval(save, between)
    assert waste(best, save, between) <= waste(other, save, between) + 1e-9

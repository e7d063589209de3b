"""Tests what the page and the text say of each failure, and of the parts of the time."""

import re
from dataclasses import replace

import pytest
from tests.history.recordings import CASES, recorded
from tests.report.report_texts import report

from ft_supervisor.history.model import CycleEnd, History
from ft_supervisor.report import render_html
from ft_supervisor.report.cards import blamed, cards, cost
from ft_supervisor.report.style import CSS, PALETTE
from ft_supervisor.report.whole import whole
from ft_supervisor.report.words import hours


def crash_loop(times: int) -> History:
    """Return a run in which the same failure came again and again."""
    history = recorded("crash")
    first, last = history.cycles
    failed = [replace(first, number=f"0.{n}", n=n) for n in range(times)]
    return replace(history, cycles=(*failed, replace(last, number=f"0.{times}", n=times)))


def test_equal_neighbours_are_one_card() -> None:
    (card,) = cards(crash_loop(11))
    assert len(card.cycles) == 11 and card.numbers == "0.0 to 0.10"
    assert card.cost == pytest.approx(11 * (recorded("crash").cycles[0].loss.total or 0))  # type: ignore[union-attr]
    page = render_html.render(report("crash", cycles=crash_loop(11).cycles))
    assert page.count('class="card"') == 1 and "&times;11" in page


def test_another_failure_between_them_keeps_them_apart() -> None:
    history = crash_loop(3)
    assert history.cycles[1].first is not None
    first = history.cycles[1].first
    other = replace(history.cycles[1], first=replace(first, failure=replace(first.failure, message="another")))
    assert len(cards(replace(history, cycles=(history.cycles[0], other, *history.cycles[2:])))) == 3


def test_a_card_says_what_was_done_and_what_it_cost() -> None:
    lost, crash = recorded("node-lost"), recorded("crash")
    (of_node,) = cards(lost)
    assert re.fullmatch(r"\w+ took \w+'s place", of_node.answer), of_node.answer
    (of_worker,) = cards(crash)
    assert of_worker.answer == "restarted on the same nodes" and cost(of_worker).endswith(" s")
    assert blamed(crash) == [f"Workers failed by themselves once: {of_worker.what}"]
    assert blamed(lost) == []


def test_a_card_says_how_much_of_the_rule_s_budget_is_spent() -> None:
    history = recorded("crash")
    first, last = history.cycles
    (card,) = cards(replace(history, cycles=(replace(first, budget=(1, 20)), last)))
    assert card.answer == "restarted on the same nodes · restart 1 of 20"
    assert "restart 1 of 20" in render_html.render(report("crash", cycles=(replace(first, budget=(1, 20)), last)))
    (card,) = cards(replace(history, cycles=(replace(first, budget=(3, 3)),)))
    assert card.answer == "no cycle followed · 3 of 3 restarts spent"


def test_a_run_that_goes_on_has_not_ended_with_its_last_failure() -> None:
    history = recorded("crash")
    (card,) = cards(replace(history, cycles=history.cycles[:1], verdict=None))
    assert card.answer == "no cycle has followed yet" and not card.final and cost(card) != "the job ended"


def test_a_lost_node_s_card_counts_its_peers_failures() -> None:
    first, last = recorded("crash").cycles
    assert first.first is not None
    first = replace(first, first=replace(first.first, consequence_of="node2 was not heard for 7 s"))
    history = replace(recorded("crash"), cycles=(first, last))
    (card,) = cards(history)
    assert card.consequences in render_html.render(report("crash", cycles=history.cycles))
    assert card.consequences == "1 worker of its peers failed as well: a consequence"
    assert all(card.consequences == "" for card in cards(recorded("crash")))


@pytest.mark.parametrize("case", CASES)
def test_the_painted_parts_are_the_whole_time(case: str) -> None:
    history = recorded(case)
    parts = whole(history)
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert sum(part.seconds for part in parts) == pytest.approx(history.length, rel=0.02)
    assert all(f".{part.kind}" in CSS for part in parts)
    page = render_html.render(report(case))
    widths = [float(each) for each in re.findall(r'style="flex:([\d.]+)"', page)]
    assert sum(widths) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_each_failed_cycle_is_on_exactly_one_card(case: str) -> None:
    history = recorded(case)
    failed = [cycle.number for cycle in history.cycles if cycle.ended is CycleEnd.FAILED]
    assert [cycle.number for card in cards(history) for cycle in card.cycles] == failed


def test_a_hang_s_card_names_whom_the_decision_names() -> None:
    history = recorded("hang")
    told = "rank 7 (n3, local 1) never entered all_reduce 41 of group dp"
    cycles = (replace(history.cycles[0], reason=told), *history.cycles[1:])
    assert cards(replace(history, cycles=cycles))[0].what == told


def test_what_it_cost_is_told_as_far_as_it_is_known() -> None:
    history = recorded("crash")
    assert history.cost is not None
    known = replace(history.cost, nodes=4, workers=32, gpus=16, partial=False, unknown=0.0)
    known = replace(known, repeated=40.0, repeated_known=True, steps_twice=30)
    told = hours(replace(history, cost=known))
    assert "node-hours" in told and "GPU-hours" in told
    assert told.endswith("; 40 s of training done twice, about 30 steps")
    assert "GPU" not in hours(replace(history, cost=replace(known, gpus=None)))
    assert "; at least 40 s of training" in hours(replace(history, cost=replace(known, repeated_known=False)))
    assert hours(replace(history, cost=None)) == ""
    for cost_, least in ((known, False), (replace(known, partial=True), True)):
        page = render_html.render(report("crash", cost=cost_))
        assert ("at least" in page, "ratio at most" in page) == (least, least)


def test_no_two_meanings_share_a_colour() -> None:
    for dark in (False, True):
        assert len({pair[dark] for pair in PALETTE.values()}) == len(PALETTE)

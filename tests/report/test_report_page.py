"""Tests the report's page: its contents, and how a browser shows it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from tests.history.recordings import CASES, RECORDED, recorded
from tests.report import browser
from tests.report.browser import Browser
from tests.report.report_texts import EVIL, evil, report, row, sacct

from ft_supervisor.history.builder import build
from ft_supervisor.history.facts import facts
from ft_supervisor.history.model import Fault
from ft_supervisor.report import render_html, render_json, render_text
from ft_supervisor.report.model import Report, join
from ft_supervisor.report.svg import MOST_NODES, MOST_OPEN

VOID = {"meta", "link", "br", "img", "hr"}
CHROMIUM = browser.installed()


class Tree(HTMLParser):
    """Collects all tags and attributes; raises if they are not nested correctly."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("case", CASES)
def test_a_page_is_whole_and_asks_nobody_for_anything(case: str) -> None:
    tree = Tree(render_html.render(report(case, sacct("requeue-second"), ["a note"])))
    tags = {tag for tag, _ in tree.tags}
    assert not tags & {"script", "img", "iframe", "object", "embed", "base", "form", "audio", "video"}
    for tag, attributes in tree.tags:
        assert not {name for name in attributes if name.startswith("on")}, tag
        links = [attributes[name] for name in ("href", "src", "xlink:href") if name in attributes]
        assert all(link == "data:," for link in links), (tag, links)
    assert "@import" not in tree.text and not re.search(r"url\((?!#hatch)", tree.text)
    rows = [attributes["data-node"] for tag, attributes in tree.tags if "data-node" in attributes]
    assert rows == [node.name for node in recorded(case).nodes]


def test_the_page_tells_it_all() -> None:
    text = Tree(render_html.render(report("takeover", [row("COMPLETED", 100)], ["a note"]))).text
    for words in (
        "run 4242.0.0",
        "success",
        "all workers of cycle 1.2 exited with 0",
        "test, job 4242",
        "success · 0",
        "node0 was not heard for 7 s",
        "restart by /shared/job/job.yaml:1 (rule 1)",
        "rank 1 (node1, local 0) exited with 1: event=worker",
        "event=worker restart=0 rank=1",
        "active in cycle 1.1, rank 0",
        "node2 took node0's place",
        "COMPLETED",
        "a note",
    ):
        assert words in text, words


def test_the_legend_has_dashed_lines_only_where_there_are_some() -> None:
    assert "dashed: a failure" in render_html.render(report("crash"))
    quiet = replace(recorded("crash"), cycles=(), takeovers=())
    assert "dashed: a failure" not in render_html.render(join("4242", [quiet], []))


def a_game_day() -> Report:
    """Return a history with a fault on node1 and one on an unknown node."""
    history = recorded("crash")
    at = (history.start or 0.0) + 2
    faults = (Fault(at, "kill", "worker", "node1", 1, cycle="0.0"), Fault(at, "kill", "node", "elsewhere"))
    assert history.first_failure is not None
    first = replace(history.first_failure, consequence_of="node2 was not heard for 7 s")
    return report("crash", faults=faults, first=first)


def test_a_game_day_and_a_consequence_are_told() -> None:
    page = render_html.render(a_game_day())
    text = Tree(page).text
    assert "a game day: ft-supervisor fault has hit it 2 times" in text
    assert "kill rank 1 (node1, local 0)" in text and "kill elsewhere" in text
    assert "A node was lost first: node2 was not heard for 7 s." in text
    assert page.count('class="fault" x=') == 1, "in the row of its node"
    assert "game day" not in render_html.render(report("crash"))


def test_why_a_cycle_began_does_not_repeat_why_the_former_one_ended() -> None:
    text = Tree(render_html.render(report("crash"))).text
    first, second = recorded("crash").cycles
    assert second.began.startswith(f"{first.reason}; ") and second.began not in text
    assert f"began: {second.choice}" in text


def test_rows_beyond_a_screenful_unfold_and_trouble_is_seen_at_once() -> None:
    history = recorded("node-lost")
    nodes = [replace(history.nodes[0], infra_rank=rank, name=f"n{rank}") for rank in range(1000)]
    nodes[777] = replace(history.nodes[1], infra_rank=777, name="n777")
    nodes[888] = replace(history.nodes[2], infra_rank=888, name="n888")
    faults = (Fault((history.start or 0.0) + 1, "kill", "agent", "n999"),)
    seen, _, folded = render_html.render(report("node-lost", nodes=tuple(nodes), faults=faults)).partition("<details>")
    assert seen.count("data-node=") == MOST_OPEN and folded.count("data-node=") == 1000 - MOST_OPEN
    assert f"<summary>{1000 - MOST_OPEN} more nodes</summary>" in folded
    assert all(f'data-node="n{rank}"' in seen for rank in (777, 888, 999)), "lost, promoted, hit"


def test_other_people_s_texts_stay_texts() -> None:
    page = render_html.render(evil())
    assert EVIL not in page and "<script" not in page and "\x1b" not in page and "\u202e" not in page
    assert "alert(1)" in Tree(page).text


HOSTILE = [
    "<script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    "{{ report.__class__ }}{% for each in report %}",
    "&lt;b&gt; &amp;",
    "]]><!-- '\" -->",
]


@pytest.mark.parametrize("line", HOSTILE)
def test_a_line_of_the_log_is_shown_as_it_was_printed(line: str) -> None:
    """It is text, also in attributes; a template's marks in it have no effect."""
    history = recorded("crash")
    assert history.first_failure is not None
    nodes = tuple(replace(node, name=line) for node in history.nodes)
    failure = replace(history.first_failure, lines=("", line, "end"))
    usual = Tree(render_html.render(report("crash")))
    tree = Tree(render_html.render(report("crash", first=failure, nodes=nodes)))
    assert f"\n\n{line}\nend" in tree.text, "the empty first line, after the line end that belongs to <pre>"
    assert [tag for tag, _ in tree.tags] == [tag for tag, _ in usual.tags]
    rows = [attributes for tag, attributes in tree.tags if "data-node" in attributes]
    assert [each["data-node"] for each in rows] == [line] * len(nodes)
    assert {name for each in rows for name in each} == {"data-node"}


def test_a_name_that_the_template_does_not_have_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render_html._template().environment.from_string("{{ nothing }}").render()


def test_a_thousand_times_a_thousand_is_bounded() -> None:
    history = recorded("node-lost")
    nodes = tuple(replace(history.nodes[3], infra_rank=rank, name=f"n{rank}") for rank in range(10_000))
    page = render_html.render(report("node-lost", nodes=nodes))
    assert page.count("data-node=") == MOST_NODES and f"and {10_000 - MOST_NODES} more nodes" in page
    assert len(page) < 4_000_000
    restless = tuple(replace(node, spans=history.nodes[0].spans * 100) for node in nodes)
    page = render_html.render(report("node-lost", nodes=restless))
    assert 50 <= page.count("data-node=") < 200 and len(page) < 12_000_000


ODD: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
)


@given(data=st.data())
@settings(deadline=None)
def test_whatever_a_journal_holds_makes_a_report(data: st.DataObject) -> None:
    """One value at a random place is replaced, and the lines are still JSON."""
    case = data.draw(st.sampled_from(["crash", "takeover", "budget-spent"]))
    told = []
    for path in sorted((RECORDED / case / "4242.0.0").glob("journal/*/journal-[ac]*.jsonl")):
        lines = path.read_bytes().splitlines(keepends=True)
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, len(lines) - 1))
            value = json.loads(lines[at])
            _spoil(value, data)
            lines[at] = json.dumps(value).encode() + b"\n"
        told.append(facts(lines))
    one = join("4242", [build("4242.0.0", told, None)], [])
    Tree(render_html.render(one))
    json.loads(render_json.render(one), parse_constant=pytest.fail)
    assert render_text.render(one, 80)


def _spoil(value: Any, data: st.DataObject) -> None:
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(value[key], dict | list) or not value[key] or data.draw(st.integers(0, 5)) == 0:
            value[key] = data.draw(ODD)
            return
        value = value[key]


# -- in a browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(f"none of {', '.join(browser.NAMES)} is installed")
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


ROWS = """[...document.querySelectorAll('tr[data-node]')].map(row => {
  row.scrollIntoView({block: 'center'});
  const bar = row.querySelector('svg').getBoundingClientRect();
  const spans = [...row.querySelectorAll('rect:not(.hatch)')].map(rect => rect.getBoundingClientRect());
  const seen = spans.filter(each => each.width >= 1 && each.height >= 5 && each.left >= bar.left - 1
                                    && each.right <= bar.right + 1);
  const at = seen[0] && document.elementFromPoint(seen[0].left + seen[0].width / 2, seen[0].top + 2);
  return {node: row.dataset.node, top: bar.top + scrollY, width: bar.width, spans: spans.length, seen: seen.length,
          name: row.querySelector('th').getBoundingClientRect().width, hit: at ? at.closest('tr').dataset.node : null,
          titles: row.querySelectorAll('rect > title').length};
})"""
PLACES = """[document.querySelector('[data-node=node1] .fault path'), ...['node1', 'node0', 'node2'].map(
  node => document.querySelector(`[data-node=${node}] svg`)), document.querySelector('svg.marks')
].map(each => each.getBoundingClientRect().toJSON())"""
LABELS = """[...document.querySelectorAll('svg.axis text')].map(each => each.getBoundingClientRect().toJSON())
  .filter(each => each.width > 0)"""
REASONS = """[...document.querySelectorAll('.card b, td.why')].filter(
  each => each.getBoundingClientRect().right > document.documentElement.clientWidth).map(each => each.textContent)"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.slow("the same page read as text")
@pytest.mark.parametrize("width", [1200, 380])
@pytest.mark.parametrize("case", ["takeover", "budget-spent", "running"])
def test_a_browser_shows_a_row_for_each_node(chromium: Browser, tmp_path: Path, case: str, width: int) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html.render(report(case, sacct("requeue-second"), ["a note"])))
    chromium.events.clear()
    chromium.open(page, width)
    history = recorded(case)
    rows = chromium.evaluate(ROWS)
    assert [each["node"] for each in rows] == [node.name for node in history.nodes]
    for each, node in zip(rows, history.nodes, strict=True):
        assert each["width"] > 150 and each["name"] > 50
        assert each["spans"] == each["titles"] == len(node.spans)
        assert each["seen"] >= 1 and each["hit"] == node.name, "the first span lies there where it is seen"
    tops = [each["top"] for each in rows]
    assert tops == sorted(set(tops)), "one below the other"
    assert chromium.evaluate(WIDER) <= 0, "nothing sticks out"
    assert_quiet(chromium, page)


@pytest.mark.slow("the same page read as text")
@pytest.mark.parametrize("width", [1200, 800, 380])
def test_in_a_browser_a_fault_is_seen_in_its_row_and_lines_go_through_all(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html.render(a_game_day()))
    chromium.events.clear()
    chromium.open(page, width)
    flash, row, first, last, marks = chromium.evaluate(PLACES)
    assert flash["width"] > 5 and row["left"] - 10 < flash["left"] < row["right"] and flash["top"] >= row["top"] - 3
    assert flash["bottom"] <= row["bottom"] + 3
    assert marks["left"] == pytest.approx(row["left"], abs=1) and marks["width"] == pytest.approx(row["width"], abs=1)
    assert marks["top"] <= first["top"] and last["bottom"] - 1 <= marks["bottom"] < last["bottom"] + 10
    assert chromium.evaluate(WIDER) <= 0
    chromium.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert chromium.evaluate(WIDER) <= 0, "all rows and lines are unfolded"
    assert chromium.evaluate("document.querySelector('td.why').getBoundingClientRect().width") > 200
    assert chromium.evaluate(REASONS) == [], "the reason is seen without scrolling sideways"
    if width < 600:
        assert chromium.evaluate("document.querySelector('table.rows').scrollWidth") <= width
    labels = chromium.evaluate(LABELS)
    assert all(one["right"] <= other["left"] for one, other in pairwise(labels)), labels
    assert_quiet(chromium, page)


@pytest.mark.slow("the same page read as text")
@pytest.mark.parametrize("width", [1280, 800, 380])
def test_in_a_browser_the_times_below_the_rows_do_not_touch(chromium: Browser, tmp_path: Path, width: int) -> None:
    start = recorded("crash").start
    assert start is not None
    for number, length in enumerate((7.5, 58.0, 113.0, 193.0, 1000.0, 3599.0, 7100.0, 20_000.0, 88_000.0, 600_000.0)):
        page = tmp_path / f"{number}.html"
        page.write_text(render_html.render(report("crash", until=start + length)))
        chromium.open(page, width)
        labels = chromium.evaluate(LABELS)
        assert len(labels) >= 2 and labels[-1]["right"] <= width
        assert all(one["right"] + 2 < other["left"] for one, other in pairwise(labels)), (length, labels)


@pytest.mark.slow("the same page read as text")
def test_in_a_browser_other_people_s_texts_do_nothing(chromium: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html.render(evil()))
    chromium.events.clear()
    chromium.open(page, 1000)
    assert chromium.evaluate("document.title") == "test, job 4242"
    assert chromium.evaluate("document.scripts.length") == 0
    assert chromium.evaluate("[...document.querySelectorAll('pre')].at(-1).textContent").endswith("ok")
    assert_quiet(chromium, page)


def assert_quiet(chromium: Browser, page: Path) -> None:
    """Check that the console has no error, and that only the page was loaded."""
    said = [
        (method, params)
        for method, params in chromium.events
        if method in ("Log.entryAdded", "Runtime.exceptionThrown")
    ]
    said += [(method, params) for method, params in chromium.events if method == "Runtime.consoleAPICalled"]
    assert not said
    asked = {params["request"]["url"] for method, params in chromium.events if method == "Network.requestWillBeSent"}
    assert asked - {"data:,"} == {page.as_uri()}

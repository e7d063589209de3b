"""Tests the timeline as a picture of its own, and that the documentation's pictures have the page's colours."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.history.recordings import CASES, recorded
from tests.report.report_texts import EVIL

from ft_supervisor.report.picture import draw
from ft_supervisor.report.style import PALETTE

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
MEANINGS = {"active": "training", "standby": "standby", "stop": "stopping", "red": "detection", "lost": "detection"}


@pytest.mark.parametrize("case", CASES)
def test_a_picture_is_made_of_any_run(case: str) -> None:
    history = recorded(case)
    drawn = draw(history, "a run")
    root = ElementTree.fromstring(drawn)
    names = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert names == [node.name for node in history.nodes]
    kinds = {str(span.state) for node in history.nodes for span in node.spans}
    assert kinds <= {rect.get("class") for rect in root.iter(f"{SVG}rect")}
    assert all(f".{kind} {{" in drawn for kind in kinds)
    assert "var(" not in drawn and "<script" not in drawn and "href" not in drawn


def test_the_picture_s_legend_fits_into_it() -> None:
    root = ElementTree.fromstring(draw(recorded("crash"), "a run"))
    letter = 7.0  # pixels of an average letter at 11 pixels, about
    words = [
        (float(each.get("x", "0")), each.text or "") for each in root.iter(f"{SVG}text") if each.get("class") == "soft"
    ]
    assert len(words) == 6 and all(x + letter * len(text) < float(root.get("width", "0")) for x, text in words)
    assert all(one[0] + 6 * len(one[1]) < other[0] - 16 for one, other in pairwise(words))


def test_names_in_a_picture_stay_texts() -> None:
    history = recorded("crash")
    nodes = tuple(replace(node, name=EVIL) for node in history.nodes)
    drawn = draw(replace(history, nodes=nodes), EVIL)
    ElementTree.fromstring(drawn)
    assert "<script" not in drawn and "\x1b" not in drawn


def test_the_documentation_s_pictures_have_the_page_s_colours() -> None:
    seen = set()
    for path in sorted(PICTURES.glob("*.svg")):
        text = path.read_text(encoding="utf-8")
        for kind, colour in re.findall(r"\.(\w+) \{ fill: (#[0-9a-f]{6})", text):
            if kind in MEANINGS:
                assert colour == PALETTE[MEANINGS[kind]][0], f"{path.name}: .{kind}"
                seen.add(path.name)
    assert {"cycle.svg", "processes.svg", "takeover.svg", "timeline.svg"} <= seen


def test_readme_s_first_picture_is_a_run_with_failures() -> None:
    readme = (PICTURES.parents[1] / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"!\[[^\]]*\]\(([^)]*)\)", readme)[0] == "docs/pictures/timeline.svg"
    root = ElementTree.fromstring((PICTURES / "timeline.svg").read_text(encoding="utf-8"))
    kinds = {rect.get("class") for rect in root.iter(f"{SVG}rect") if "%" in rect.get("x", "")}
    assert {"active", "standby", "stopped", "lost"} <= kinds

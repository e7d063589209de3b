"""Tests text for people: counts, durations, lists of names, and text without sequences that control a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.words import MARK, count, duration, names, one_line, plain, printable, without_escapes


def test_counts() -> None:
    assert [count(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_lists_of_names() -> None:
    assert names([], 0) == ""
    assert names(["a", "b"], 2) == "a, b"
    assert names(["a", "b"], 5, ",") == "a,b and 3 more"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "?"),
        (-1.0, "0 ms"),
        (float("nan"), "0 ms"),
        (0.0, "0 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.10 s"),
        (0.994, "0.99 s"),
        (0.996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (72, "1 min 12 s"),
        (3599.9, "1 h"),
        (7380, "2 h 3 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        (" a\n b\t\r\nc ", "a b c"),
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 499 + "…"),
        ("\x1b]0;title\x07\x1b[2Jred", "red"),
        ("\x9b31m \x90q\x9c", "31m q"),
        ("ab\u202ecod\u2066.\u200b\ufeff", "abcod."),
        ("a\0b\ud800c\x7f", "abc"),
        ("a\rb\x85c\u2028d\xa0e", "a b c d e"),
        ("grün ✓ 日本", "grün ✓ 日本"),
    ],
)
def test_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


@given(st.text(), st.integers(1, 20))
def test_one_line_is_one_short_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert line.isprintable()


def test_colours_of_others_are_left_out() -> None:
    assert plain("\x1b[1;31mError\x1b[0m:\tno\r\nmore\x1b]0;title\x07") == "Error: no  more"
    assert plain("\x1b]0;no end") == f"{MARK}]0;no end"


def test_long_texts_are_cut() -> None:
    assert plain("x" * 10_000) == "x" * 1999 + "…"


def test_what_people_write_stays() -> None:
    assert plain("  Zürich, 東京: 50 %") == "  Zürich, 東京: 50 %"


@given(st.text())
def test_printable_text_keeps_its_length_and_can_be_printed(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text) and shown.isprintable()
    assert all(now == then for now, then in zip(shown, text, strict=True) if then.isprintable())


@given(st.text("\x1b[]01;m\x07\\ a"))
def test_escapes_are_removed_and_nothing_else_changes(text: str) -> None:
    rest = iter(text)
    assert all(each in rest for each in without_escapes(text)), "what is left stood there in this order"

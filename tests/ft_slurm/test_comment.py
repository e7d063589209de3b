"""Tests our part of a job's comment, beside the text of others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_slurm.comment import LIMIT, has, part, with_part


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        ("", "one", "[ft: one]"),
        ("mine", "one", "mine [ft: one]"),
        ("mine ", "one", "mine [ft: one]"),
        ("mine [ft: one]", "two", "mine [ft: two]"),
        ("a [ft: one] b", "two", "a [ft: two] b"),
        ("[ft: one] b", "", "b"),
        ("a [ft: one]", "", "a"),
        ("a [ft: one] b", "", "a b"),
        ("a  b ", "", "a  b "),
        ("half [ft: a part", "one", "half [ft: a part [ft: one]"),
        ("[ftx: other]", "one", "[ftx: other] [ft: one]"),
        ("", "two\nlines [and] more", "[ft: two lines (and) more]"),
        ("x" * LIMIT, "one", "x" * LIMIT),
        ("not decoded: \ufffd", "one", "not decoded: \ufffd"),
        ("", "a\0b", "[ft: ab]"),
    ],
)
def test_what_becomes_of_a_comment(before: str, text: str, after: str) -> None:
    assert with_part(before, "ft", text) == after


COMMENTS = st.lists(st.sampled_from(["[ft: ", "]", "[", "ü", "x", " ", "\n", "[ft: old]"]) | st.text()).map("".join)


@given(COMMENTS, st.text(), st.integers(0, 80))
def test_others_lose_nothing_and_the_limit_holds(before: str, text: str, limit: int) -> None:
    after = with_part(before, "ft", text, limit)
    if "\ufffd" in before:
        assert after == before
        return
    old, new = part(before, "ft"), part(after, "ft")
    kept = before.replace(f"[ft: {old}]", " ", 1) if f"[ft: {old}]" in before else before
    assert after == before or after.replace(f"[ft: {new}]", " ", 1).split() == kept.split() or not text
    if after != before and text:
        assert len(after.encode(errors="replace")) <= limit
        assert not {"\n", "[", "]"} & set(new)
        assert with_part(after, "ft", text, limit) == after
    if not text:
        assert after.split() == kept.split()


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("[ft: success]", True),
        ("by me [ft: success, 3 cycles] too", True),
        ("[ft: success (restart 1), 3 cycles]", False),
        ("[ft: successful]", False),
        ("[ft: failed, success]", False),
        ("success, 3 cycles", False),
        ("", False),
    ],
)
def test_whether_it_is_told_already(comment: str, expected: bool) -> None:
    assert has(comment, "ft", "success") is expected


def test_one_run_is_not_taken_for_another() -> None:
    assert has("[ft: success (restart 1), 3 cycles]", "ft", "success (restart 1)")
    assert not has("[ft: success (restart 12), 3 cycles]", "ft", "success (restart 1)")

"""The part of a worker's last output that can be shown, and its length."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.agent.last_lines import last_lines


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        (b"", ""),
        (b"\n\n  \n", ""),
        (b"one\ntwo\n", "one\ntwo"),
        (b"no end", "no end"),
        (b"a\n\n\nb\r\n", "a\nb"),
        (b"  File x\n\tline\n", "  File x\n    line"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07bold\n", "red bold"),
        (b" 1%\r 2%\r 3%\nnext\n", " 3%\nnext"),
        (b"50%\r", "50%"),
        (b"\x00\x01\xffx\n", "���x"),
        ("grün 火\n".encode(), "grün 火"),
        ("a\u2028b\x85c\n".encode(), "a b c"),
    ],
)
def test_plain_lines(tail: bytes, shown: str) -> None:
    assert last_lines(tail, 20, 2048) == shown


def test_the_end_is_kept() -> None:
    tail = b"".join(b"line %d\n" % n for n in range(10_000))
    assert last_lines(tail, 3, 2048) == "line 9997\nline 9998\nline 9999"
    assert last_lines(tail, 1000, 100).endswith("\nline 9998\nline 9999")


def test_of_a_long_line_the_end_is_kept() -> None:
    text = last_lines(b"first\n" + b"x" * 100_000 + b"end", 20, 2048)
    assert text.startswith("…xxx") and text.endswith("xend")
    assert 2000 < len(json.dumps(text)) <= 2050


@given(st.one_of(st.binary(max_size=5000), st.text(max_size=2000).map(lambda text: text.encode("utf-8", "replace"))))
def test_whatever_it_is_it_fits(tail: bytes) -> None:
    for limit in (100, 2048):
        text = last_lines(tail, 5, limit)
        assert len(json.dumps(text)) - 2 <= limit
        lines = text.split("\n")
        assert len(lines) <= 5
        assert all(line.isprintable() for line in lines)


def test_64_kib_of_noise_take_no_time() -> None:
    assert last_lines(os.urandom(65_536), 20, 2048)

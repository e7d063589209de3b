"""Tests lists of infra_ranks as short text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.core.protocol.bounds import MOST_NODES
from ft_supervisor.core.protocol.codec import MAX_BYTES
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((0,), "0"),
        ((0, 1, 2, 7, 4), "0-2,7,4"),
        ((2, 1, 0), "2,1,0"),
        ((5, 6, 4, 3), "5-6,4,3"),
    ],
)
def test_text(ranks: tuple[int, ...], text: str) -> None:
    assert format_ranks(ranks) == text
    assert parse_ranks(text) == ranks


@given(st.lists(st.integers(0, 200), unique=True))
def test_every_list_comes_back_in_its_order(ranks: list[int]) -> None:
    assert parse_ranks(format_ranks(ranks)) == tuple(ranks)


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1,,2", ",", "1-2-3", " 1", "1,", "1234567", "٣"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no range of ranks"):
        parse_ranks(text)


@given(st.text())
def test_no_text_does_harm(text: str) -> None:
    try:
        ranks = parse_ranks(text)
    except ValueError:
        return
    assert len(ranks) <= MOST_NODES


def test_no_rank_is_there_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse_ranks("5-6,5")


def test_no_text_is_turned_into_more_than_there_can_be() -> None:
    with pytest.raises(ValueError, match="more than"):
        parse_ranks(f"0-{MOST_NODES}")
    with pytest.raises(ValueError, match="more than"):
        parse_ranks(",".join(["0-99998"] * 1000))


def test_ten_thousand_nodes_fit_into_a_message() -> None:
    assert len(format_ranks(range(0, 20_000, 2))) < MAX_BYTES

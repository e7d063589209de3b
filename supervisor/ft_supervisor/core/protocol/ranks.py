"""Writes lists of infra_ranks as short text, so that ten thousand nodes fit into a message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ft_supervisor.core.protocol.bounds import MOST_NODES

_PIECE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def format_ranks(ranks: Iterable[int]) -> str:
    """Return `[0, 1, 2, 7, 4]` as "0-2,7,4": the order stays, and ascending neighbours become a range."""
    pieces: list[tuple[int, int]] = []
    for rank in ranks:
        if pieces and pieces[-1][1] + 1 == rank:
            pieces[-1] = pieces[-1][0], rank
        else:
            pieces.append((rank, rank))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in pieces)


@lru_cache(maxsize=64)
def parse_ranks(text: str) -> tuple[int, ...]:
    """Return the ranks that `format_ranks` wrote as `text`.

    Raises ValueError for any other text, for more than MOST_NODES ranks, and for a rank that occurs twice.
    """
    ranks: list[int] = []
    for piece in text.split(",") if text else []:
        match = _PIECE.fullmatch(piece)
        if match is None:
            raise ValueError(f"{piece[:40]!r} is no range of ranks")
        low = int(match[1])
        ranks += range(low, int(match[2] or low) + 1)
        if len(ranks) > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} ranks")
    if len(set(ranks)) < len(ranks):
        raise ValueError("a rank twice")
    return tuple(ranks)


@lru_cache(maxsize=64)
def highest(text: str) -> int:
    """Return the greatest rank in `text`; -1 if it is empty. Raises ValueError as `parse_ranks` does."""
    return max(parse_ranks(text), default=-1)

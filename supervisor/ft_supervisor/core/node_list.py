"""Writes lists of nodes as Slurm does: `n[0-3,7],gpu-a01`. ft_slurm.nodelist reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST = 160
"""Characters of a list; of a longer one the rest is counted."""
_NAME = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)")


def fold(names: Sequence[str], limit: int = MOST) -> str:
    """Return these names as one host list expression, in their order where neighbours allow it.

    Of a list with more than about `limit` characters only the first part is written: `n[0-40] and 12 more`.
    """
    terms: dict[tuple[str, str] | str, list[tuple[int, int, int]]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            terms.setdefault(name, [])
            continue
        head, digits, tail = match.groups()
        ranges, number = terms.setdefault((head, tail), []), int(digits)
        low, high, width = ranges[-1] if ranges else (0, -2, 0)
        if number == high + 1 and f"{number:0{width}d}" == digits:
            ranges[-1] = low, number, width
        else:
            ranges.append((number, number, len(digits)))
    return _written(terms, len(names), limit)


def _written(terms: dict[tuple[str, str] | str, list[tuple[int, int, int]]], total: int, limit: int) -> str:
    written: list[str] = []
    length, told = 0, 0
    for term, ranges in terms.items():
        pieces: list[str] = []
        count = 0 if ranges else 1
        for low, high, width in ranges:
            piece = f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}"
            if (written or pieces) and length + len(piece) > limit:
                break
            pieces.append(piece)
            length += len(piece) + 1
            count += high - low + 1
        if not pieces and ranges:
            break
        text = _term(term, pieces)
        if written and length + len(text) > limit:
            break
        written.append(text)
        length += len(text) - sum(map(len, pieces))
        told += count
    more = f" and {total - told} more" if total > told else ""
    return ",".join(written) + more


def _term(term: tuple[str, str] | str, pieces: list[str]) -> str:
    if isinstance(term, str):
        return term
    head, tail = term
    alone = len(pieces) == 1 and "-" not in pieces[0]
    return f"{head}{pieces[0]}{tail}" if alone else f"{head}[{','.join(pieces)}]{tail}"

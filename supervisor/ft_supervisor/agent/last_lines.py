"""Extracts the last lines of a worker's output, as text that any terminal, log line and message can take."""

from __future__ import annotations

import json

from ft_supervisor.core.words import printable, without_escapes

_LEAST = 32
"""Bytes that must be left for another line to be worth it."""


def last_lines(tail: bytes, lines: int, limit: int) -> str:
    """Return at most so many lines that are not empty, and at most `limit` bytes as JSON writes them; the end is kept.

    The text has no control characters except the newlines between lines. Of text that a progress bar has overwritten
    only the last version is left.
    """
    found: list[str] = []
    room = limit
    for raw in reversed(tail.split(b"\n")):
        line = _plain(raw[-limit:])
        if not line:
            continue
        if len(found) == lines or room < _LEAST:
            break
        kept = _end(line, room - 2)  # for the newline, which JSON writes as \n
        room -= 2 + _size(kept)
        found.append(kept)
    return "\n".join(reversed(found))


def _plain(raw: bytes) -> str:
    text = without_escapes(raw.decode(errors="replace").rstrip()).rpartition("\r")[2]
    return printable(text.expandtabs(4)).rstrip()


def _size(text: str) -> int:
    return len(json.dumps(text)) - 2


def _end(text: str, room: int) -> str:
    """Return as much of the text's end as fits, with … for the rest."""
    if _size(text) <= room:
        return text
    room -= _size("…")
    at = len(text)
    while at > 0 and (size := _size(text[at - 1])) <= room:
        at -= 1
        room -= size
    return f"…{text[at:]}"

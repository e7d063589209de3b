"""Lines that fit a terminal."""

from __future__ import annotations

import time

from rich.cells import cell_len

from ft_supervisor.core.words import plain

_DAY = 86400.0


def clock(at: float, now: float) -> str:
    """Return the time of day of `at` by this host's time zone, with the date if it is a day or more before `now`; both
    in seconds since the epoch."""
    return time.strftime("%H:%M:%S" if now - at < _DAY else "%Y-%m-%d %H:%M:%S", time.localtime(at))


def wrap(text: str, width: int, indent: int) -> list[str]:
    """Return the text as lines of at most `width` columns; some letters take two columns. All lines but the first are
    indented by `indent`, which is less than `width`. A word that is longer than a line is cut."""
    text, lines = plain(text), []
    begin = len(text) - len(text.lstrip(" "))
    while (fitting := _fitting(text, width)) < len(text):
        space = text.rfind(" ", begin, fitting + 1)
        at = space if space > begin else fitting
        lines.append(text[:at].rstrip())
        text, begin = " " * indent + text[at:].lstrip(), indent
    return [*lines, text.rstrip()]


def _fitting(text: str, width: int) -> int:
    """Return how many of the text's letters fit."""
    columns = 0
    for count, letter in enumerate(text):
        columns += cell_len(letter)
        if columns > width:
            return count
    return len(text)

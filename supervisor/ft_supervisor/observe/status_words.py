"""What several texts for people share: durations, words from anywhere, and lines that fit."""

from __future__ import annotations

import re

from rich.cells import cell_len

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def span(seconds: float) -> str:
    """How long something takes, in at most two units."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def clean(text: str) -> str:
    """Without what a terminal would obey: names and reasons come from anywhere."""
    return _CONTROL.sub("?", text)


def wrap(text: str, width: int, indent: int) -> list[str]:
    """Lines of at most `width` columns, of which some letters take two; all but the first are indented, by less than
    that. A word that is longer than a line is cut."""
    text, lines = clean(text), []
    begin = len(text) - len(text.lstrip(" "))
    while (fitting := _fitting(text, width)) < len(text):
        space = text.rfind(" ", begin, fitting + 1)
        at = space if space > begin else fitting
        lines.append(text[:at].rstrip())
        text, begin = " " * indent + text[at:].lstrip(), indent
    return [*lines, text.rstrip()]


def _fitting(text: str, width: int) -> int:
    """How many of its letters fit."""
    columns = 0
    for count, letter in enumerate(text):
        columns += cell_len(letter)
        if columns > width:
            return count
    return len(text)

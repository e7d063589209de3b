"""Text for people: counts, durations, lists of names, and text from outside made harmless. Pure.

Text from outside (names, reasons, output of workers) may hold control characters, which command a terminal, changes of
direction, which hide the text of a line, and lone surrogates, which no file takes. Two functions remove them:
`one_line` for log lines, reasons and messages, which are short; `plain` where a text is shown with its spacing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ft_supervisor.core.node_list import fold

UNKNOWN = "?"
MARK = "\N{REPLACEMENT CHARACTER}"
"""Replaces a character that cannot be printed."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""The sequences that set colours and move the cursor (ECMA-48: CSI and OSC sequences, two-byte escapes)."""


def count(number: int, word: str) -> str:
    """Return `1 cycle` or `2 cycles`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def names(first: Sequence[str], total: int, between: str = ", ") -> str:
    """Return `a, b and 3 more`: the first names of a list that has `total`."""
    more = f" and {total - len(first)} more" if total > len(first) else ""
    return between.join(first) + more


def duration(seconds: float | None) -> str:
    """Return `3 ms`, `0.32 s`, `7.1 s`, `1 min 12 s`, `2 h 3 min` or `3 d 4 h`; `?` for None.

    A negative number, the difference of two machines' clocks, counts as 0.
    """
    if seconds is None:
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        if seconds < 0.0995:
            return f"{1000 * seconds:.0f} ms"
        return f"{seconds:.2f} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, part, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name} {rest} {small}" if rest else f"{whole // size} {name}"
    return f"{whole} s"


def waiting(missing: Sequence[str], total: int, left: float, *, enough: bool) -> str:
    """Return the nodes that a job of `total` nodes waits for, and what it does without them in `left` seconds:
    `1 of 3 nodes: n2; gives up in 9 min`."""
    then = "begins without" if enough else "gives up"
    if enough:
        then += " it" if len(missing) == 1 else " them"
    return f"{len(missing)} of {count(total, 'node')}: {fold(missing)}; {then} in {duration(left)}"


def rung(how: str, why: str) -> str:
    """Return a restart's RestartMode and RungReason in words; "" without them."""
    reasons = {"rule": "the rule asks for them", "before_progress": "it had made no progress", "budget": "budget spent"}
    if how == "in_process":
        return "in process"
    return f"with new processes ({reasons.get(why, why)})" if how else ""


def one_line(text: str, limit: int = 500) -> str:
    """Return `text` with each run of white space as one blank and without anything that cannot be printed
    (str.isprintable), at most `limit` characters."""
    line = "".join(filter(str.isprintable, " ".join(without_escapes(text).split())))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def plain(text: str, limit: int = 2000) -> str:
    """Return `text` without escape sequences, made `printable`, at most `limit` characters."""
    return printable(without_escapes(text if len(text) <= limit else f"{text[: limit - 1]}…"))


def printable(text: str) -> str:
    """Return `text` with its spacing: a blank for each white space, MARK for each character that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else " " if each.isspace() else MARK for each in text)


def without_escapes(text: str) -> str:
    """Return `text` without the sequences that set a terminal's colours and move its cursor."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text

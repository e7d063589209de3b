"""Findings as lines for people, and as JSON. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from ft_supervisor.core.words import one_line
from ft_supervisor.doctor.finding import Finding, Level, exit_code

VERSION = 1
"""Version of the JSON. A new key does not change it; a key that changes its meaning, or goes, makes it 2."""
LONGEST = 600
"""Characters of a text; node lists can be longer."""
_INDENT = " " * 6


def lines(finding: Finding, width: int | None) -> list[str]:
    """Return a finding as one line, for a pipe; with `width` wrapped at that many characters, at least 40."""
    text, todo = one_line(f"{finding.check}: {finding.text}", LONGEST), one_line(finding.todo, LONGEST)
    first = f"{finding.level:4}  {text}"
    if width is None:
        return [f"{first} -> {todo}" if todo else first]
    wrapper = textwrap.TextWrapper(max(40, width), subsequent_indent=_INDENT, break_on_hyphens=False)
    found = wrapper.wrap(first)
    if todo:
        wrapper.initial_indent, wrapper.subsequent_indent = f"{_INDENT}-> ", f"{_INDENT}   "
        found += wrapper.wrap(todo)
    return found


def summary(findings: Sequence[Finding]) -> str:
    """Return `20 checks: 17 ok, 2 warn, 1 fail`."""
    counts = [sum(finding.level is level for finding in findings) for level in Level]
    return f"{len(findings)} checks: " + ", ".join(
        f"{count} {level}" for count, level in zip(counts, Level, strict=True)
    )


def as_json(findings: Sequence[Finding], where: str, host: str) -> str:
    """Return all findings as JSON. `where` is one of environment.Where."""
    rows = [
        {"check": each.check, "level": each.level.value, "text": one_line(each.text, LONGEST), "todo": each.todo}
        for each in findings
    ]
    whole = {"version": VERSION, "host": host, "where": where, "ok": exit_code(findings) == 0, "findings": rows}
    return json.dumps(whole, indent=2)

"""Writes the Markdown of the generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MADE = "<!-- Made from the code by scripts/docs. Change the code, and run that again. -->"


def page(title: str, intro: str, *parts: str) -> str:
    """Return a whole page; parts are joined by empty lines."""
    return "\n\n".join([MADE, f"# {title}", intro, *parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a | or a line break within a cell does no harm."""
    lines = [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    """Return `text` as code within a line."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"

"""Puts the tables of ft_supervisor.report.advice into docs/3am.md, between the comments that name them."""

from __future__ import annotations

import re
from pathlib import Path

from ft_supervisor.report import advice

_TABLE = re.compile(r"(<!-- advice\.yaml: (\w+) -->\n\n).*?(\n<!-- end -->\n)", re.DOTALL)


def render(root: Path) -> str:
    """Return the page with its tables made anew. `root`: of the repository."""
    page = (root / "docs" / "3am.md").read_text(encoding="utf-8")
    return _TABLE.sub(lambda found: f"{found[1]}{advice.markdown(found[2])}{found[3]}", page)

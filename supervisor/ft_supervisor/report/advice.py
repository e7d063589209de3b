"""What to do about a job's end or failure: the rows of advice.yaml, from which the tables of docs/3am.md are made, too.

A row is found by the verdict's Ending and by the Cause of a failure, which are data; no text is read for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml
from markupsafe import Markup, escape

from ft_supervisor.core.protocol.model import Ending
from ft_supervisor.core.protocol.settings import Cause, Culprit
from ft_supervisor.history.model import CycleEnd, History

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`([^`]*)`")


@dataclass(frozen=True)
class Advice:
    """One row. `anchor`: its place in docs/3am.md. `see`, `means`, `do`: Markdown, one line each. `endings`, `causes`:
    it fits a job that ended so, or a failure with that cause; `culprit`: if so much is known of who began a hang."""

    anchor: str
    see: str
    means: str
    do: str
    endings: frozenset[Ending]
    causes: frozenset[Cause]
    culprit: Culprit | None = None


@cache
def table(name: str) -> tuple[Advice, ...]:
    """Return a table's rows. `name`: `over`, or `running`."""
    rows = yaml.safe_load(files(__package__).joinpath("advice.yaml").read_text(encoding="utf-8"))[name]
    return tuple(
        Advice(
            row["anchor"],
            row["see"],
            row["means"],
            row["do"],
            frozenset(map(Ending, row.get("endings", ()))),
            frozenset(map(Cause, row.get("causes", ()))),
            Culprit(row["culprit"]) if "culprit" in row else None,
        )
        for row in rows
    )


def row(anchor: str) -> Advice:
    """Return the row with this anchor, which is one of advice.yaml's."""
    return next(each for each in _rows() if each.anchor == anchor)


def by_ending(ending: Ending) -> tuple[Advice, ...]:
    """Return the row for a verdict that ended so; () if there is none."""
    return tuple(each for each in _rows() if ending in each.endings)


def by_cause(cause: str, culprit: Culprit | None = None) -> tuple[Advice, ...]:
    """Return the row for a failure of this Cause; () if there is none. `culprit`: of a hang, if that was looked for."""
    return tuple(each for each in _rows() if cause in each.causes and each.culprit is culprit)


def _rows() -> tuple[Advice, ...]:
    return (*table("over"), *table("running"))


def advised(history: History) -> tuple[Advice, ...]:
    """Return what fits the run: the row of its verdict, and that of its last failure's cause; () after a success."""
    ending = history.verdict.ending if history.verdict else Ending.UNKNOWN
    if ending is Ending.TRAINED:
        return ()
    last = next((cycle for cycle in reversed(history.cycles) if cycle.ended is CycleEnd.FAILED), None)
    found = by_ending(ending)
    if last is not None:
        found += by_cause(last.cause, last.hang.culprit if last.hang else None)
    return tuple(dict.fromkeys(found))


def markdown(name: str) -> str:
    """Return a table for docs/3am.md, in which each row has an anchor."""
    lines = ["| what you see | what it means | what to do |", "| --- | --- | --- |"]
    lines += [f"| <a id={row.anchor}></a>{row.see} | {row.means} | {row.do} |" for row in table(name)]
    return "\n".join(lines) + "\n"


def text(markdown: str) -> str:
    """Return a row's Markdown as plain text."""
    return _CODE.sub(r"\1", _LINK.sub(r"\1", markdown))


def markup(markdown: str) -> Markup:
    """Return a row's Markdown as HTML, without links: the page stands alone."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(_LINK.sub(r"\1", markdown)))))

"""Renders the report as one HTML page, without scripts and without anything from a network. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from ft_supervisor.core.words import count, duration, plain
from ft_supervisor.history.model import CycleEnd, CycleStory, FirstFailedWorker
from ft_supervisor.report.advice import advised, markup
from ft_supervisor.report.cards import MOST_CARDS, blamed, cards, cost
from ft_supervisor.report.model import Report
from ft_supervisor.report.style import CSS
from ft_supervisor.report.svg import DEFINITIONS, timeline
from ft_supervisor.report.template import PAGE
from ft_supervisor.report.whole import percent, spoken, whole
from ft_supervisor.report.words import (
    NOTHING_PRINTED,
    PARTS,
    chip,
    clock,
    consequence,
    decision,
    deed,
    first_failing,
    game_day,
    hours,
    lost,
    made,
    moment,
    outcome,
    parts_of,
    ran,
    ratio,
    run_line,
    title,
    verdict_line,
    why,
)

_MOST_NAMES = 64
_MOST_FAULTS = 1000


def render(report: Report) -> str:
    """Return the whole page."""
    return _template().render(report=report).lstrip()  # the macros before it leave empty lines


def environment() -> Environment:
    """Return what a page's template is made with: every value is escaped."""
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _template() -> Template:
    page = environment()
    functions: list[Callable[..., object]] = [advised, blamed, cards, clock, consequence, cost, count, decision, deed]
    functions += [duration, first_failing, game_day, lost, markup, moment, outcome, percent, ran, spoken, hours, ratio]
    functions += [timeline, title, whole]
    page.globals |= {function.__name__: function for function in functions} | {
        "CSS": Markup(CSS),
        "DEFINITIONS": DEFINITIONS,
        "MOST_CARDS": MOST_CARDS,
        "MOST_FAULTS": _MOST_FAULTS,
        "NOTHING_PRINTED": NOTHING_PRINTED,
        "PARTS": PARTS,
        "began_of": _began,
        "chip_words": chip,
        "first_names": _first_names,
        "last_lines": _last_lines,
        "parts_of": parts_of,
        "reason_of": _reason,
        "run_line": run_line,
        "titles_of": _titles,
        "verdict_line": verdict_line,
    }
    return page.from_string(PAGE)


def _shown(value: object) -> object:
    """Make a value of the template harmless; Jinja escapes it afterwards. Markup is HTML of our own."""
    return value if isinstance(value, Markup) else plain(str(value))


def _titles(failed: Sequence[CycleStory]) -> list[str]:
    return [part.replace("_", " ") for part in parts_of(failed)]


def _reason(cycle: CycleStory) -> str:
    return cycle.reason if cycle.ended is CycleEnd.FAILED else why(cycle)


def _first_names(cycle: CycleStory) -> str:
    return ", ".join(cycle.nodes[:_MOST_NAMES]) + (" ..." if len(cycle.nodes) > _MOST_NAMES else "")


def _last_lines(failure: FirstFailedWorker) -> Markup:
    return Markup("\n").join(plain(line.expandtabs()) for line in failure.lines)


def _began(cycle: CycleStory, former: CycleStory | None) -> str:
    """Return why the cycle began, without the reason why `former` ended, which is in the row above; and how its workers
    were made."""
    began = cycle.choice if former else cycle.began
    return "; ".join(each for each in (began, made(cycle)) if each)

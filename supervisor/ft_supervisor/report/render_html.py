"""Renders the report as one HTML page, without scripts and without anything from a network. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from ft_supervisor.core.words import duration, plain
from ft_supervisor.history.model import CycleEnd, CycleStory, FirstFailedWorker, History
from ft_supervisor.report.model import Report
from ft_supervisor.report.style import CSS
from ft_supervisor.report.svg import DEFINITIONS, PARTS, known, loss_bar, timeline
from ft_supervisor.report.template import PAGE
from ft_supervisor.report.words import (
    NOTHING_PRINTED,
    clock,
    consequence,
    decision,
    deed,
    first_failing,
    game_day,
    made,
    moment,
    outcome,
    ran,
    reason,
    share,
    since_then,
    why,
    zone,
)

_MOST_NAMES = 64
_MOST_FAULTS = 1000


def render(report: Report) -> str:
    """Return the whole page."""
    return _template().render(report=report).lstrip()  # the macros before it leave empty lines


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    functions: list[Callable[..., object]] = [clock, consequence, deed, duration, first_failing, game_day, known]
    functions += [loss_bar, moment, outcome, ran, reason, since_then, timeline, why, zone]
    environment.globals |= {function.__name__: function for function in functions} | {
        "CSS": Markup(CSS),
        "DEFINITIONS": DEFINITIONS,
        "MOST_FAULTS": _MOST_FAULTS,
        "NOTHING_PRINTED": NOTHING_PRINTED,
        "PARTS": PARTS,
        "titles_of_parts": [part.replace("_", " ") for part in PARTS],
        "began_of": _began,
        "decision": decision,
        "facts_of": _facts,
        "first_names": _first_names,
        "last_lines": _last_lines,
    }
    return environment.from_string(PAGE)


def _shown(value: object) -> object:
    """Make a value of the template harmless; Jinja escapes it afterwards. Markup is HTML of our own."""
    return value if isinstance(value, Markup) else plain(str(value))


def _facts(history: History) -> dict[str, str]:
    """Return the run's figures by title."""
    failed = sum(cycle.ended is CycleEnd.FAILED for cycle in history.cycles)
    return {
        "began": moment(history.start),
        "took" if history.verdict else "so far": duration(history.length),
        "nodes": f"{len(history.nodes)}" + (f", {history.active} to train" if history.active else ""),
        "cycles": f"{len(history.cycles)}, {failed} failed",
        "takeovers": str(len(history.takeovers)),
        "training": duration(history.training),
        "effective training time ratio": share(history.ratio),
        "lost to failures": duration(history.lost),
    }


def _first_names(cycle: CycleStory) -> str:
    return ", ".join(cycle.nodes[:_MOST_NAMES]) + (" ..." if len(cycle.nodes) > _MOST_NAMES else "")


def _last_lines(failure: FirstFailedWorker) -> Markup:
    return Markup("\n").join(plain(line.expandtabs()) for line in failure.lines)


def _began(cycle: CycleStory, former: CycleStory | None) -> str:
    """Return why the cycle began, without the reason why `former` ended, which is in the row above; and how its workers
    were made."""
    began = cycle.choice if former else cycle.began
    return "; ".join(each for each in (began, made(cycle)) if each)

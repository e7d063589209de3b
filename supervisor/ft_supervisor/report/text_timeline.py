"""Draws the report's timeline in letters: a line for each node, a column for each part of the run's time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby, takewhile

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ft_supervisor.core.words import count, plain
from ft_supervisor.history.model import History, NodeStory, Span, SpanState
from ft_supervisor.report.words import clock, interesting

MOST_NODES = 40
_MARKS = {
    SpanState.STANDBY: ".",
    SpanState.STARTING: ":",
    SpanState.UNNOTICED: "?",
    SpanState.STOPPED: "-",
    SpanState.LOST: "x",
    SpanState.EXCLUDED: "!",
}
_STYLES = {
    SpanState.STARTING: "yellow",
    SpanState.ACTIVE: "green",
    SpanState.STANDBY: "cyan",
    SpanState.UNNOTICED: "bold red",
    SpanState.STOPPED: "yellow",
    SpanState.LOST: "bold red",
    SpanState.EXCLUDED: "magenta",
}
_TROUBLE = (SpanState.LOST, SpanState.EXCLUDED)
_LEGEND = (
    "a digit: active, in the cycle that ends with it; : starting; . standby; ? failed, not noticed yet; - stopped; "
    "x lost; ! excluded"
)


def timeline(history: History, width: int) -> Iterator[RenderableType]:
    """Yield rows, an axis below them, and a legend, `width` columns wide. The wait before
    the first cycle is left out. A large job gets MOST_NODES rows."""
    shown = interesting(history, MOST_NODES)
    first = next((cycle.start for cycle in history.cycles), None)
    start, end = first or history.start or 0.0, history.until or 0.0
    names = min(max(len(node.name) for node in shown), max(8, width // 3))
    columns = max(8, width - names - 3)
    rows = [Text(f"  {plain(node.name)[:names]:{names}} ") + _bar(node, start, end, columns) for node in shown]
    yield Group(*rows)
    left, right = clock(start), clock(end, start)
    if columns >= len(left) + len(right) + 1:
        yield Text(" " * (names + 3) + left + " " * (columns - len(left) - len(right)) + right, "dim")
    if len(shown) < len(history.nodes):
        yield Text(f"  and {count(len(history.nodes) - len(shown), 'more node')}; --json and --html have all")
    yield Padding(Text(_LEGEND, "dim"), (0, 0, 0, 2))


def _bar(node: NodeStory, start: float, end: float, columns: int) -> Text:
    step = max(end - start, 1e-9) / columns
    spans = deque(node.spans)
    shown: list[Span | None] = []
    for column in range(columns):
        left, middle, right = (start + (column + part) * step for part in (0.0, 0.5, 1.0))
        while spans and _over(spans[0], left):
            spans.popleft()
        here = list(takewhile(lambda span: span.start < right, spans))  # noqa: B023 - used at once
        # A loss is visible even if it was short.
        seen = next((span for span in here if span.state in _TROUBLE), None)
        seen = seen or next((span for span in here if span.start <= middle and not _over(span, middle)), None)
        shown.append(seen)
    bar = Text(no_wrap=True)
    for span, alike in groupby(shown):
        bar.append(len(list(alike)) * _mark(span), None if span is None else _STYLES[span.state])
    return bar


def _over(span: Span, at: float) -> bool:
    return span.end is not None and span.end <= at


def _mark(span: Span | None) -> str:
    if span is None:
        return " "
    return span.cycle[-1:] if span.state is SpanState.ACTIVE else _MARKS[span.state]

"""Draws the page's timeline, with a row for each node. Pure.

Positions along the time are in per cent of the width, so that they follow the window and letters keep their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from markupsafe import Markup

from ft_supervisor.core.protocol.worker_words import ranks, ranks_of_node
from ft_supervisor.core.words import count, duration, plain
from ft_supervisor.history.model import CycleEnd, Fault, History, NodeStory, Span, SpanState
from ft_supervisor.report.words import clock, deed, interesting

MOST_NODES = 2000
MOST_OPEN = 64
"""Rows that are visible at first, to keep the page short; the others unfold."""
MOST_FAULTS = 1000
MOST_MARKS = 40
"""With more lines than that the bars would be hidden."""
MOST_SPANS = 40_000
"""Spans on one page: 8 MB. With more than that browsers are slow."""
_HEIGHT = 18
_LEAST = 0.25
"""The least width of a span in per cent: a failure of 50 ms in an hour has to be visible."""
_LABELLED = 4.0
"""The least width in per cent of a span with its cycle's number in it; a telephone needs three times as much."""
_STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200),
    *(86400, 172800, 604800),
)
_FLASH = "M0 12 L-6 0 H6 Z"
"""The shape of a fault's mark, in pixels from its place in the row."""
_ORDER = (
    SpanState.STANDBY,
    SpanState.STARTING,
    SpanState.ACTIVE,
    SpanState.UNNOTICED,
    SpanState.STOPPED,
    SpanState.EXCLUDED,
    SpanState.LOST,
)
"""The order of drawing: a later state covers an earlier one."""

DEFINITIONS = Markup(
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs><pattern id="hatch" width="6"'
    ' height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2" height="6" fill="#fff"'
    ' fill-opacity=".45"/></pattern></defs></svg>'
)


def timeline(history: History) -> Markup:
    """Return rows of nodes, an axis below them, and a legend."""
    scale = _scale(history)
    spans = sum(len(node.spans) for node in history.nodes) / max(1, len(history.nodes))
    nodes = interesting(history, min(MOST_NODES, max(50, int(MOST_SPANS / max(1.0, spans)))))
    faults: dict[str, list[Fault]] = {}
    for fault in history.faults[:MOST_FAULTS]:
        faults.setdefault(fault.node, []).append(fault)
    seen = {node.infra_rank for node in interesting(history, MOST_OPEN)}
    tables = [
        _table("".join(_row(node, scale, faults.get(node.name, ())) for node in part), history, scale)
        for part in (
            [node for node in nodes if node.infra_rank in seen],
            [node for node in nodes if node.infra_rank not in seen],
        )
        if part
    ]
    folded = "".join(
        f"<details><summary>{count(len(nodes) - len(seen), 'more node')}</summary>{table}</details>"
        for table in tables[1:]
    )
    more = len(history.nodes) - len(nodes)
    left_out = f'<p class="soft">and {count(more, "more node")}, which are in the JSON</p>' if more else ""
    return Markup(f"{tables[0]}{_legend(nodes, bool(_moments(history)), bool(history.faults))}{folded}{left_out}")


def _table(rows: str, history: History, scale: _Scale) -> str:
    axis = f'<tr><th></th><td><svg class="axis" height="22">{"".join(_axis(scale))}</svg></td></tr>'
    table = f'<table class="time"><tbody>{rows}{axis}</tbody></table>'
    return f'<div class="over">{table}{_marks(history, scale)}</div>'


class _Scale:
    """Converts times to per cent of the width."""

    def __init__(self, start: float, end: float, per_node: int | None) -> None:
        self.start = start
        self.end = end
        self.per_node = per_node

    def x(self, at: float) -> float:
        return 100 * min(1.0, max(0.0, (at - self.start) / (self.end - self.start)))

    def place(self, span: Span) -> tuple[float, float]:
        """Return the left end and the width of a span, in per cent."""
        x = self.x(span.start)
        width = max(_LEAST, self.x(self.end if span.end is None else span.end) - x)
        return min(x, 100 - width), width


def _scale(history: History) -> _Scale:
    start, end = history.start or 0.0, history.until or 0.0
    return _Scale(start, max(end, start + 1e-3), history.per_node)


def _bars(node: NodeStory, scale: _Scale, faults: Iterable[Fault]) -> str:
    spans = sorted(node.spans, key=lambda span: _ORDER.index(span.state))
    bars = "".join(_bar(span, scale) for span in spans)
    labels = "".join(_label(span, scale) for span in spans if span.state is SpanState.ACTIVE)
    return f"{bars}{labels}{''.join(_hit(fault, scale) for fault in faults)}"


def _row(node: NodeStory, scale: _Scale, faults: Iterable[Fault]) -> str:
    name = escape(plain(node.name))
    return (
        f'<tr data-node="{name}"><th scope="row" title="{name}">{name}</th><td><svg height="{_HEIGHT}" role="img"'
        f' aria-label="{name}: {escape(_spoken(node))}">{_bars(node, scale, faults)}</svg></td></tr>'
    )


def rows(history: History) -> tuple[list[tuple[str, str]], str]:
    """Return the name and the bars of each of the first nodes, and the axis, without a page around them."""
    scale = _scale(history)
    faults = history.faults[:MOST_FAULTS]
    drawn = [
        (node.name, _bars(node, scale, [fault for fault in faults if fault.node == node.name]))
        for node in interesting(history, MOST_OPEN)
    ]
    return drawn, "".join(_axis(scale))


def _spoken(node: NodeStory) -> str:
    return ", ".join(f"{span.state} {span.cycle}".strip() for span in node.spans) or "never came"


def _bar(span: Span, scale: _Scale) -> str:
    end = scale.end if span.end is None else span.end
    x, width = scale.place(span)
    inset = 4 if span.state is SpanState.STANDBY else 1
    shape = f'x="{x:.3f}%" width="{width:.3f}%" y="{inset}" height="{_HEIGHT - 2 * inset}"'
    hatch = f'<rect class="hatch" {shape}/>' if span.state in (SpanState.LOST, SpanState.EXCLUDED) else ""
    return (
        f'<rect class="{span.state}" {shape}><title>{escape(_title(span, end, scale.per_node))}</title></rect>{hatch}'
    )


def _label(span: Span, scale: _Scale) -> str:
    x, width = scale.place(span)
    if width < _LABELLED:
        return ""
    tight = ' class="tight"' if width < 3 * _LABELLED else ""
    return f'<text{tight} x="{x + width / 2:.3f}%" y="13" text-anchor="middle">{escape(span.cycle)}</text>'


def _hit(fault: Fault, scale: _Scale) -> str:
    """Return a fault's mark, a triangle whose tip is at the moment."""
    title = escape(f"{deed(fault, scale.per_node)}\n{clock(fault.at)}")
    return f'<svg class="fault" x="{scale.x(fault.at):.3f}%"><path d="{_FLASH}"><title>{title}</title></path></svg>'


def _title(span: Span, end: float, per_node: int | None) -> str:
    place = f" in cycle {span.cycle}" if span.cycle else ""
    if span.group_rank is not None and per_node is not None:
        place += f", {ranks(ranks_of_node(span.group_rank, per_node))}"
    what = f"{span.state}{place}"
    reason = f"\n{plain(span.reason)}" if span.reason else ""
    return f"{what}\n{clock(span.start)} to {clock(end)}, {duration(end - span.start)}{reason}"


def _moments(history: History) -> list[float]:
    """Return the times of the marks; none if there are more than MOST_MARKS."""
    moments = [cycle.loss.at for cycle in history.cycles if cycle.ended is CycleEnd.FAILED and cycle.loss]
    moments += [takeover.at for takeover in history.takeovers]
    return moments if len(moments) <= MOST_MARKS else []


def _marks(history: History, scale: _Scale) -> str:
    """Return lines through all rows at the failures of cycles and at takeovers."""
    moments = _moments(history)
    if not moments:
        return ""
    lines = (f'<line x1="{scale.x(at):.3f}%" x2="{scale.x(at):.3f}%" y1="0" y2="100%"/>' for at in moments)
    return f'<svg class="marks" aria-hidden="true">{"".join(lines)}</svg>'


def _axis(scale: _Scale) -> Iterator[str]:
    length = scale.end - scale.start
    step = next((each for each in _STEPS if length / each <= 6), length / 6)
    ticks = [scale.start + i * step for i in range(int(length / step) + 1)]
    for number, at in enumerate(ticks):
        x = scale.x(at)
        odd = ' class="odd"' if number % 2 else ""
        anchor = "start" if x < 4 else "end" if x > 94 else "middle"
        label = clock(at) if at == scale.start else f"+{_round(at - scale.start)}"
        yield f'<line x1="{x:.3f}%" x2="{x:.3f}%" y1="0" y2="5"/>'
        yield f'<text{odd} x="{x:.3f}%" y="17" text-anchor="{anchor}">{label}</text>'


def _round(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{seconds:g} s"


def _legend(nodes: Iterable[NodeStory], marks: bool, faults: bool) -> str:
    seen = {str(span.state) for node in nodes for span in node.spans}
    words = {
        "active": "training, with its cycle",
        "starting": "workers start",
        "standby": "standby",
        "unnoticed": "failed, and not noticed yet",
        "stopped": "stopping, and waiting for the next cycle",
        "lost": "lost",
        "excluded": "excluded",
    }
    parts = []
    for name, text in words.items():
        if name not in seen:
            continue
        hatch = '<rect class="hatch" width="100%" height="100%"/>' if name in ("lost", "excluded") else ""
        parts.append(f'<span><svg><rect class="{name}" width="100%" height="100%"/>{hatch}</svg>{text}</span>')
    if marks:
        parts.append("<span>dashed: a failure, or a takeover</span>")
    if faults:
        flash = f'<svg class="fault" viewBox="-10 -1 20 14"><path d="{_FLASH}"/></svg>'
        parts.append(f"<span>{flash}ft-supervisor fault</span>")
    return f'<div class="legend">{"".join(parts)}</div>'

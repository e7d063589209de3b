"""Draws the timeline of a run as a picture of its own, for the documentation. Pure.

The bars are those of the page (report.svg), with colours instead of the page's CSS.
"""

from __future__ import annotations

from html import escape

from ft_supervisor.core.words import count, duration, plain
from ft_supervisor.history.model import History
from ft_supervisor.report.cards import cards
from ft_supervisor.report.style import PALETTE
from ft_supervisor.report.svg import DEFINITIONS, rows
from ft_supervisor.report.words import clock

_WIDE, _NAMES, _HIGH, _TOP = 880, 76, 24, 16
_FILLS = {
    "active": "training",
    "starting": "starting",
    "standby": "standby",
    "unnoticed": "detection",
    "stopped": "stopping",
    "lost": "detection",
    "excluded": "excluded",
}
_LEGEND = {
    "active": "training, with its cycle",
    "starting": "workers start",
    "standby": "standby",
    "unnoticed": "failed, not noticed yet",
    "stopped": "stopping, and waiting",
    "lost": "lost",
}


def draw(history: History, title: str) -> str:
    """Return the picture as SVG. `title`: one line for people who do not see it."""
    drawn, axis = rows(history)
    bars = [
        f'<text class="name" x="12" y="{y + 13}">{escape(plain(name))}</text>'
        f'<svg x="{_NAMES}" y="{y}" width="{_WIDE - _NAMES - 12}" height="18">{row}</svg>'
        for y, (name, row) in ((_TOP + _HIGH * i, each) for i, each in enumerate(drawn))
    ]
    below = _TOP + _HIGH * len(drawn)
    legend, x = [], 12.0
    for kind, words in _LEGEND.items():
        hatch = f'<rect class="hatch" x="{x:g}" y="{below + 34}" width="16" height="12"/>' if kind == "lost" else ""
        legend.append(f'<rect class="{kind}" x="{x:g}" y="{below + 34}" width="16" height="12"/>{hatch}')
        legend.append(f'<text class="soft" x="{x + 22:g}" y="{below + 44}">{words}</text>')
        x += 36 + 6.5 * len(words)
    height = below + 60
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {height}" width="{_WIDE}" height="{height}"'
        f' role="img"><title>{escape(plain(title))}</title>'
        f"<desc>{escape(_told(history))}</desc>"
        f"<style>{_css()}</style>{_hatch()}"
        f'<rect width="{_WIDE}" height="{height}" fill="{PALETTE["bg"][0]}"/>{"".join(bars)}'
        f'<svg class="axis" x="{_NAMES}" y="{below}" width="{_WIDE - _NAMES - 12}" height="22">{axis}</svg>'
        f"{''.join(legend)}</svg>\n"
    )


def _told(history: History) -> str:
    """Return the failures in words."""
    told = [f"{clock(card.at)} {card.what}, {card.answer}" for card in cards(history)]
    return plain(f"{count(len(history.nodes), 'node')} over {duration(history.length)}. {'; '.join(told)}")


def _css() -> str:
    fills = " ".join(f".{kind} {{ fill: {PALETTE[colour][0]} }}" for kind, colour in _FILLS.items())
    soft, line, fg = PALETTE["soft"][0], PALETTE["line"][0], PALETTE["fg"][0]
    return (
        'text { font: 11px "DejaVu Sans", Verdana, Arial, sans-serif; fill: #ffffff } '
        f".name {{ font-size: 13px; fill: {fg} }} .soft, .axis text {{ fill: {soft} }} .axis line {{ stroke: {line} }} "
        f".hatch {{ fill: url(#hatch) }} .fault path {{ fill: #ffd43b; stroke: {fg} }} .fault {{ overflow: visible }} "
        f".active {{ stroke: #ffffff; stroke-width: 2 }} {fills}"
    )


def _hatch() -> str:
    text = str(DEFINITIONS)
    return text[text.index("<defs>") : text.index("</defs>") + len("</defs>")]

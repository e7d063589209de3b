"""The page's CSS, and the palette that the page and the documentation's pictures share. It loads no font, picture or
script."""

from __future__ import annotations

PALETTE = {
    "bg": ("#ffffff", "#14181f"),
    "fg": ("#1c2330", "#e4e8ee"),
    "soft": ("#5b6472", "#98a2b3"),
    "line": ("#d9dee6", "#323a47"),
    "panel": ("#f5f7fa", "#1c222c"),
    "training": ("#2e8b57", "#3aa36a"),
    "standby": ("#6f86a3", "#55687f"),
    "starting": ("#e0a526", "#d19a22"),
    "detection": ("#c8324a", "#e0566c"),
    "stopping": ("#7d1f2f", "#9c3346"),
    "waiting": ("#c3ccd5", "#475262"),
    "queued": ("#a9c1dd", "#36506e"),
    "again": ("#9a5fc0", "#a777cf"),
    "excluded": ("#5a4a66", "#7c6b8a"),
    "unknown": ("#e3e7ed", "#2b3340"),
}
"""Each colour by its meaning: in light, and in dark. One meaning has one colour wherever it is painted."""


def _colours(dark: bool) -> str:
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in PALETTE.items())


_RULES = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1.5rem; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.4; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .25rem; border-top: 1px solid var(--line); padding-top: 1.25rem;
  overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .4rem; }
p { margin: .25rem 0; overflow-wrap: anywhere; }
li { overflow-wrap: anywhere; }
code { font: .88em ui-monospace, monospace; background: var(--panel); padding: 0 .25em; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.chip { display: inline-block; padding: 0 .6em; border-radius: 1em; color: #1c2330; background: #e0a526;
  font-size: .8rem; font-weight: 700; vertical-align: middle; }
.chip.success { background: #2e8b57; color: #fff; }
.chip.failed, .chip.cancelled { background: #c8324a; color: #fff; }
.say { border-left: 5px solid var(--starting); padding: .4rem .8rem; background: var(--panel); margin: .7rem 0;
  font-size: 1.07rem; }
.say.success { border-color: var(--training); }
.say.failed, .say.cancelled, .warn { border-color: var(--detection); }
.say p + p { font-size: .95rem; }
.say code { background: none; padding: 0; }
.warn { border-left: 5px solid var(--detection); padding: .4rem .8rem; background: var(--panel); }
.stack { display: flex; height: 34px; border-radius: 6px; overflow: hidden; font-size: 12px; }
.stack div { display: flex; align-items: center; justify-content: center; white-space: nowrap; overflow: hidden;
  min-width: 0; }
.stack .training, .stack .detection, .stack .stopping, .stack .again { color: #fff; }
.stack .starting { color: #1c2330; }
.stack .first { color: #fff; }
.stack .waiting, .stack .queued { color: var(--fg); }
.training { background: var(--training); fill: var(--training); }
.first, .standby { background: var(--standby); fill: var(--standby); }
.starting { background: var(--starting); fill: var(--starting); }
.detection, .unnoticed, .lost { background: var(--detection); fill: var(--detection); }
.stopping, .stopped { background: var(--stopping); fill: var(--stopping); }
.waiting { background: var(--waiting); fill: var(--waiting); }
.queued { background: var(--queued); fill: var(--queued); }
.again { background: var(--again); fill: var(--again); }
.excluded { background: var(--excluded); fill: var(--excluded); }
.unknown { background: var(--unknown); fill: var(--unknown); }
.end { background: var(--soft); color: var(--bg); }
.active { fill: var(--training); stroke: var(--panel); stroke-width: 2; }
.hatch { fill: url(#hatch); pointer-events: none; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .4rem 0; color: var(--soft); font-size: .85rem; }
.legend i { display: inline-block; width: .9em; height: .9em; border-radius: 2px; margin-right: .35em;
  vertical-align: -.1em; }
.legend svg { width: 1.2rem; height: .9rem; vertical-align: -.1rem; margin-right: .3rem; }
.card { display: grid; grid-template-columns: 4.3rem 1fr 5.5rem; gap: .1rem .8rem; padding: .55rem 0;
  border-bottom: 1px solid var(--line); }
.card > * { min-width: 0; overflow-wrap: anywhere; }
.card > time { color: var(--soft); overflow-wrap: normal; font-variant-numeric: tabular-nums; }
.card > .cost { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.card b { font-weight: 600; }
.card details, .card .hints { grid-column: 2 / -1; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td { white-space: nowrap; }
td.wide { white-space: normal; overflow-wrap: anywhere; }
td.wide:not(:empty) { min-width: 6rem; }
td.why { min-width: 14rem; }
table.time { table-layout: fixed; }
table.time th, table.time td { border: 0; padding: 1px 0; vertical-align: middle; }
table.time th { width: 9rem; font-weight: 400; padding-right: .6rem; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
table.time svg { display: block; width: 100%; background: var(--panel); }
svg text { font: 11px system-ui, sans-serif; fill: #fff; pointer-events: none; }
svg.axis { background: none !important; }
svg.axis text { fill: var(--soft); }
svg.axis line { stroke: var(--line); }
.over { position: relative; }
svg.marks { position: absolute; top: 0; left: 9rem; width: calc(100% - 9rem); height: calc(100% - 24px);
  pointer-events: none; }
svg.marks line { stroke: var(--fg); stroke-width: 1; stroke-dasharray: 2 2; }
svg.fault { overflow: visible; background: none !important; }
svg.fault path { fill: #ffd43b; stroke: #1c2330; stroke-width: 1; }
details { margin: .3rem 0; }
summary { cursor: pointer; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem; margin: .3rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font: .85rem/1.4 ui-monospace, monospace; }
@media (max-width: 600px) { body { padding: .8rem; }
  .stack div:not(.training) { font-size: 0; }
  .card { grid-template-columns: 4.4rem 1fr; }
  .card > .cost { grid-column: 2; grid-row: auto; text-align: left; color: var(--soft); }
  .card > .cost::before { content: "cost "; }
  .card details, .card .hints { grid-column: 1 / -1; }
  table.rows, table.rows tbody, table.rows tr { display: block; }
  table.rows thead { display: none; }
  table.rows tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  table.rows td { display: flex; gap: .6rem; border: 0; padding: .05rem 0; white-space: normal; min-width: 0 !important;
    overflow-wrap: anywhere; }
  table.rows td > span { min-width: 0; overflow-wrap: anywhere; }
  table.rows td:empty, table.rows td:has(> span:only-child:empty) { display: none; }
  table.rows td::before { content: attr(data-title); color: var(--soft); flex: 0 0 5.5rem; }
  table.time th { width: 5.5rem; }
  svg.axis text.odd, svg text.tight { display: none; }
  svg.marks { left: 5.5rem; width: calc(100% - 5.5rem); } }
@media print { .scroll { overflow: visible; } }
"""

CSS = (
    f"\n:root {{ color-scheme: light dark; {_colours(dark=False)} }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {_colours(dark=True)} }} }}"
    f"{_RULES}"
)

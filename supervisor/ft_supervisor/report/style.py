"""The page's CSS. It loads no font, picture or script."""

CSS = """
:root { color-scheme: light dark; --bg: #ffffff; --fg: #1c2330; --soft: #5b6472; --line: #d9dee6; --panel: #f5f7fa;
  --active: #2e8b57; --active2: #1f6f8b; --standby: #c9d3df; --stopped: #e0a526; --lost: #c8324a; --excluded: #7d4aa6;
  --detection: #c8324a; --stop: #e0a526; --decision: #7d4aa6; --rendezvous: #1f6f8b; --worker_start: #2e8b57; }
@media (prefers-color-scheme: dark) { :root { --bg: #14181f; --fg: #e4e8ee; --soft: #98a2b3; --line: #323a47;
  --panel: #1c222c; --active: #3aa36a; --active2: #3d93b3; --standby: #46505f; --stopped: #d19a22; --lost: #e0566c;
  --excluded: #a777cf; --detection: #e0566c; --stop: #d19a22; --decision: #a777cf; --rendezvous: #3d93b3;
  --worker_start: #3aa36a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 1.5rem; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 .25rem; border-top: 1px solid var(--line); padding-top: 1.25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .25rem 0; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.chip { display: inline-block; padding: 0 .6em; border-radius: 1em; color: #fff; background: var(--stopped);
  font-size: .85em; font-weight: 600; vertical-align: middle; }
.chip.success { background: var(--active); }
.chip.failed, .chip.cancelled { background: var(--lost); }
.note { border-left: 4px solid var(--stopped); padding: .4rem .75rem; background: var(--panel); }
.warn { border-left: 4px solid var(--lost); padding: .4rem .75rem; background: var(--panel); }
.facts { display: flex; flex-wrap: wrap; gap: .6rem; margin: .75rem 0; padding: 0; }
.facts div { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .8rem; }
.facts dt { color: var(--soft); font-size: .8rem; }
.facts dd { margin: 0; font-weight: 600; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td { white-space: nowrap; }
td.wide { white-space: normal; overflow-wrap: anywhere; }
td.wide:not(:empty) { min-width: 6rem; }
td.wide:not(:empty):has(br) { min-width: 16rem; }
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
details { margin: .5rem 0; }
summary { cursor: pointer; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .5rem 0; color: var(--soft); font-size: .85rem; }
.legend svg { width: 1.4rem; height: .9rem; vertical-align: -.1rem; margin-right: .3rem; }
.active { fill: var(--active); } .active.odd { fill: var(--active2); } .standby { fill: var(--standby); }
.starting { fill: var(--stopped); opacity: .55; }
.stopped { fill: var(--stopped); } .lost { fill: var(--lost); } .excluded { fill: var(--excluded); }
.detection { fill: var(--detection); } .stop { fill: var(--stop); } .decision { fill: var(--decision); }
.rendezvous { fill: var(--rendezvous); } .worker_start { fill: var(--worker_start); }
.hatch { fill: url(#hatch); pointer-events: none; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem;
  white-space: pre-wrap; overflow-wrap: anywhere; font: .85rem/1.4 ui-monospace, monospace; }
@media (max-width: 600px) { body { padding: .8rem; } table.time th { width: 5.5rem; }
  svg.axis text.odd, svg text.tight { display: none; }
  svg.marks { left: 5.5rem; width: calc(100% - 5.5rem); } }
@media print { .scroll { overflow: visible; } }
"""

"""The report as one page: no script, nothing from a network, whoever wrote the texts in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ft_supervisor.core.words import duration, plain
from ft_supervisor.observe.history import CycleEnd, CycleStory, History
from ft_supervisor.observe.report_model import Report
from ft_supervisor.observe.report_style import CSS
from ft_supervisor.observe.report_svg import DEFINITIONS, PARTS, known, loss_bar, timeline
from ft_supervisor.observe.report_words import (
    NOTHING_PRINTED,
    clock,
    consequence,
    deed,
    first_failing,
    game_day,
    moment,
    outcome,
    ran,
    reason,
    share,
    since_then,
    why,
    zone,
)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A browser loads nothing for this page, should anything in it ask for that."""
_MOST_NAMES = 64
_MOST_FAULTS = 1000


def render(report: Report) -> str:
    """The whole page."""
    title = f"job {plain(report.job)}"
    body = "".join(
        [
            DEFINITIONS,
            f"<h1>{escape(title)}</h1>",
            f'<p class="soft">times are {escape(zone())}</p>',
            *(f'<p class="warn">{escape(plain(line))}</p>' for line in report.alarms),
            *(_run(history, outcome(history, report)) for history in report.runs),
            _slurm(report) if report.starts else "",
            _notes("Missing", report.notes),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body>{body}</body></html>\n"
    )


def _run(history: History, word: str) -> str:
    chip = f'<span class="chip {escape(word)}">{escape(word)}</span>' if history.verdict else escape(word)
    parts = [f"<h2>run {escape(history.run_id)} {chip}</h2>"]
    if history.verdict:
        parts.append(f"<p>{escape(reason(history.verdict))}</p>")
    if history.faults:
        parts.append(f'<p class="note">{escape(game_day(history.faults))}</p>')
    if history.start is not None:
        parts.append(_facts(history))
    if history.nodes:
        parts += ["<h3>Nodes</h3>", timeline(history)]
    if history.cycles:
        parts += ["<h3>Cycles</h3>", _cycles(history)]
    parts += [_losses(history), _takeovers(history), _faults(history), _first(history)]
    parts.append(_notes("Not known", history.notes))
    return f"<section>{''.join(parts)}</section>"


def _facts(history: History) -> str:
    failed = sum(cycle.ended is CycleEnd.FAILED for cycle in history.cycles)
    facts = {
        "began": moment(history.start),
        "took" if history.verdict else "so far": duration(history.length),
        "nodes": f"{len(history.nodes)}" + (f", {history.active} to train" if history.active else ""),
        "cycles": f"{len(history.cycles)}, {failed} failed",
        "takeovers": str(len(history.takeovers)),
        "training": duration(history.training),
        "effective training time ratio": share(history.ratio),
        "lost to failures": duration(history.lost),
    }
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{"".join(cells)}</dl>'


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], wide: Sequence[int] = ()) -> str:
    """Cells are HTML. `wide`: the columns that take what is left, and may wrap."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td{' class=wide' if i in wide else ''}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cycles(history: History) -> str:
    def row(cycle: CycleStory, former: CycleStory | None) -> list[str]:
        names = ", ".join(cycle.nodes[:_MOST_NAMES]) + (" ..." if len(cycle.nodes) > _MOST_NAMES else "")
        nodes = f'<span title="{escape(plain(names))}">{len(cycle.nodes)}</span>'
        text = plain(cycle.reason) if cycle.ended is CycleEnd.FAILED else why(cycle)
        began = cycle.began.removeprefix(f"{former.reason}; ") if former else cycle.began  # it stands one row above
        began = f'<br><span class="soft">began: {escape(plain(began))}</span>' if began else ""
        decided = " by ".join(filter(None, [cycle.response, cycle.rule]))
        return [
            escape(cycle.number),
            escape(clock(cycle.start, history.start)),
            escape(ran(cycle, history.until)),
            nodes,
            escape(cycle.ended.value),
            escape(plain(cycle.cause)),
            escape(text) + began,
            escape(plain(decided)),
        ]

    titles = ["cycle", "began", "ran for", "nodes", "end", "cause", "reason", "decision"]
    return _table(titles, map(row, history.cycles, [None, *history.cycles]), wide=(6, 7))


def _losses(history: History) -> str:
    told = [(cycle, cycle.loss) for cycle in history.cycles if cycle.loss is not None]
    if not told:
        return ""
    longest = known([loss for _, loss in told])
    rows = []
    for cycle, loss in told:
        total = duration(loss.total) if loss.resumed is not None else "the job ended"
        parts = ["" if loss.resumed is None and part in PARTS[3:] else duration(getattr(loss, part)) for part in PARTS]
        rows.append(
            [
                escape(cycle.number),
                escape(clock(loss.at, history.start)),
                total,
                *map(escape, parts),
                loss_bar(loss, longest),
            ]
        )
    titles = ["cycle", "failed", "total", *(part.replace("_", " ") for part in PARTS), ""]
    legend = "".join(
        f'<span><svg><rect class="{part}" width="100%" height="100%"/></svg>{part.replace("_", " ")}</span>'
        for part in PARTS
    )
    return f'<h3>Time lost</h3>{_table(titles, rows, wide=(8,))}<div class="legend">{legend}</div>'


def _takeovers(history: History) -> str:
    if not history.takeovers:
        return ""
    rows = [
        [clock(each.at, history.start), escape(plain(each.node)), str(each.term), duration(each.gap)]
        for each in history.takeovers
    ]
    return "<h3>Takeovers</h3>" + _table(["at", "new coordinator", "term", "time without one"], rows)


def _faults(history: History) -> str:
    if not history.faults:
        return ""
    rows = [
        [clock(fault.at, history.start), escape(deed(fault)), escape(plain(fault.cycle))]
        for fault in history.faults[:_MOST_FAULTS]
    ]
    more = len(history.faults) - len(rows)
    left_out = f'<p class="soft">and {more} more, which are in the JSON</p>' if more else ""
    table = _table(["at", "what ft-supervisor fault did", "in cycle"], rows, wide=(1,))
    return f"<h3>Faults of the game day</h3>{table}{left_out}"


def _first(history: History) -> str:
    failure = history.first_failure
    if failure is None:
        return ""
    parts = ["<h3>First failing rank</h3>"]
    if failure.consequence_of:
        parts.append(f'<p class="note">{escape(consequence(failure))}</p>')
    parts.append(f"<p>{escape(first_failing(failure))}</p>")
    if failure.lines:
        parts.append(
            f'<p class="soft">its last lines{escape(plain(f", from {failure.source}" if failure.source else ""))}</p>'
        )
        parts.append(f"<pre>{escape(chr(10).join(plain(line.expandtabs()) for line in failure.lines))}</pre>")
    else:
        parts.append(f'<p class="soft">{NOTHING_PRINTED}</p>')
    if later := since_then(history):
        parts.append(f"<p>{escape(later)}</p>")
    if failure.stacks:
        parts.append(f"<p>what it was doing: {escape(plain(failure.stacks))} in the run's folder</p>")
    return "".join(parts)


def _slurm(report: Report) -> str:
    rows = [
        [
            escape(record.step or "job"),
            str(start.restart),
            escape(record.state),
            escape(str(record.exit_code or "")),
            moment(record.start) if record.start is not None else "",
            duration(record.elapsed),
            escape(plain(record.nodes)),
            escape(plain(record.comment)),
        ]
        for start in report.starts
        for record in (*start.rows, *start.steps)
    ]
    titles = ["record", "restart", "state", "exit code", "start", "took", "nodes", "comment"]
    return f"<section><h2>What Slurm says</h2>{_table(titles, rows, wide=(6, 7))}</section>"


def _notes(title: str, notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return f"<h3>{title}</h3><ul>{''.join(f'<li>{escape(plain(note))}</li>' for note in notes)}</ul>"

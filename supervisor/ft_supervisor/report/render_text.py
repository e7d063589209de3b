"""Renders the report for a terminal or a file, by rich. Nothing depends on colours, and 40 columns are enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.cells import chop_cells
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ft_supervisor.core.protocol.model import Outcome
from ft_supervisor.core.words import duration, one_line, plain
from ft_supervisor.history.model import CycleEnd, CycleStory, FirstFailedWorker, History
from ft_supervisor.report.advice import advised, text
from ft_supervisor.report.cards import blame, cards, shown_failure
from ft_supervisor.report.model import JobStart, Report
from ft_supervisor.report.text_timeline import timeline
from ft_supervisor.report.words import (
    NOTHING_PRINTED,
    PARTS,
    chip,
    clock,
    consequence,
    deed,
    first_failing,
    made,
    moment,
    outcome,
    parts_of,
    ran,
    reason,
    since_then,
    summary,
    time_line,
    verdict_line,
    why,
)
from ft_supervisor.report.words import (
    title as job_title,
)

NARROW, WIDE = 72, 120
"""Columns. Below NARROW the cells of a table's row are written below one another; below WIDE the counts of workers
take two lines, which leaves more room for the reason."""
MOST_CYCLES = 50
MOST_FAULTS = 50


def render(report: Report, width: int | None = None) -> str:
    """Return the report's lines, with colours if stdout is a terminal. `width`: columns; None for the terminal's, or
    80."""
    console = Console(markup=False, highlight=False, width=width)
    with console.capture() as captured:
        for part in _parts(report, console.width):
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().strip("\n").split("\n")) + "\n"


def brief(report: Report) -> str:
    """Return five lines: name and end, the reason, what failed, the time, and what to do."""
    if not report.runs:
        known = [job_title(report), "no run is known", *report.notes][:5]
        return "".join(f"{one_line(line)}\n" for line in known)
    newest = report.runs[0]
    word = outcome(newest, report)
    do = [text(row.do) for row in advised(newest)][:1] or [_without_advice(newest, word)]
    lines = [f"{job_title(report)}: {chip(newest) or word}", verdict_line(newest, word), blame(newest)]
    return "".join(f"{one_line(line)}\n" for line in [*lines, time_line(newest, short=True), *do])


def _without_advice(history: History, word: str) -> str:
    if history.verdict is None:
        return "it goes on" if word.startswith("running") else "look for the reason: ft-supervisor status, docs/3am.md"
    return "nothing to do" if history.verdict.outcome is Outcome.SUCCESS else "look for the reason in docs/3am.md"


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    for line in report.alarms:
        yield Text(f"! {plain(line)}", "bold red")
    for history in report.runs:
        yield from _run(history, outcome(history, report), width)
    if report.starts:
        yield from _slurm(report, width)
    if report.notes:
        yield _title("Missing")
        yield _notes(report.notes)
    if report.runs:
        newest = report.runs[0]
        yield Text(f"\n{outcome(newest, report)}: {verdict_line(newest, outcome(newest, report))}", "bold")
        yield Text(blame(newest), "bold")


def _title(text: str) -> Text:
    return Text(f"\n{text}", "bold")


def _indented(lines: Iterable[str], style: str = "") -> RenderableType:
    return Padding(Group(*(Text(line, style) for line in lines)), (0, 0, 0, 2))


def _notes(notes: Iterable[str]) -> RenderableType:
    """Return a list; a line that is broken continues below its text."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for note in notes:
        table.add_row("-", Text(plain(note)))
    return Padding(table, (0, 0, 0, 2))


def _run(history: History, word: str, width: int) -> Iterator[RenderableType]:
    good = history.verdict is not None and history.verdict.outcome is Outcome.SUCCESS
    name = f"{plain(history.name)}, run" if history.name else "run"
    yield Text.assemble((f"\n{name} {history.run_id}", "bold"), ": ", (word, "bold green" if good else "bold yellow"))
    why_so = [reason(history.verdict)] if history.verdict else []
    yield _indented([*why_so, *summary(history)])
    if any(node.spans for node in history.nodes):
        yield _title("Nodes")
        yield from timeline(history, width)
    if history.cycles:
        yield from _cycles(history, width)
    yield from _losses(history, width)
    if history.takeovers:
        yield _title("Takeovers")
        yield _indented(
            [
                f"{clock(each.at, history.start)} {plain(each.node)} is the coordinator (term {each.term})"
                + ("" if each.gap is None else f", after {duration(each.gap)} without one")
                for each in history.takeovers
            ]
        )
    if history.faults:
        yield from _faults(history)
    if advice := advised(history):
        yield _title("What to do")
        yield _notes(f"{text(row.do)} (docs/3am.md#{row.anchor})" for row in advice)
    if failure := shown_failure(history):
        yield _title("First failing rank")
        yield from _first(failure, width)
        if later := since_then(history, failure):
            yield _indented([later])
    if history.notes:
        yield _title("Not known")
        yield _notes(history.notes)


def _faults(history: History) -> Iterator[RenderableType]:
    yield _title("Faults of the game day")
    some = history.faults[-MOST_FAULTS:]
    if len(some) < len(history.faults):
        yield _indented([f"the last {len(some)} of {len(history.faults)}; --json has all"])
    cycles = (f" (cycle {plain(fault.cycle)})" if fault.cycle else "" for fault in some)
    yield _indented(
        f"{clock(fault.at, history.start)} {deed(fault, history.per_node)}{cycle}"
        for fault, cycle in zip(some, cycles, strict=True)
    )


def _first(failure: FirstFailedWorker, width: int) -> Iterator[RenderableType]:
    if failure.consequence_of:
        yield _indented([consequence(failure)], "bold")
    yield _indented([first_failing(failure)])
    if failure.lines:
        yield _indented([f"its last lines{f' ({plain(failure.source)})' if failure.source else ''}:"], "dim")
        yield _indented(part for line in failure.lines for part in _quoted(line, width))
    else:
        yield _indented([NOTHING_PRINTED], "dim")
    if failure.stacks:
        yield _indented([f"what it was doing: {plain(failure.stacks)} in the run's folder"])


def _quoted(line: str, width: int) -> Iterator[str]:
    """Yield the line broken at the terminal's width, at a blank if one is near. Breaking at any blank would leave most
    of a line empty before a long path."""
    rest, room, mark = plain(line.expandtabs()), max(10, width - 4), "| "
    while rest or mark == "| ":
        part = next(iter(chop_cells(rest[:room], room)), "") or rest[:room]
        if part != rest and (blank := part.rfind(" ", room * 2 // 3)) > 0:
            part = part[: blank + 1]
        yield mark + part
        rest, mark = rest[len(part) :], "  "


# -- tables


def _table(titles: list[str], rows: list[list[str]], width: int, last: bool = True) -> RenderableType:
    """Return a table; in a narrow terminal, one line for each cell. `last`: the last column may wrap."""
    if width < NARROW:
        cells = [[f"{title}: {cell}" for title, cell in zip(titles, row, strict=True) if cell] for row in rows]
        return Group(*(Padding(Text(cell), (0, 0, 0, 4 if i else 2)) for row in cells for i, cell in enumerate(row)))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, title in enumerate(titles):
        wraps = last and number == len(titles) - 1
        table.add_column(title, no_wrap=not wraps, overflow="fold", ratio=1 if wraps else None)
    for row in rows:
        table.add_row(*map(Text, row))
    return Padding(table, (0, 0, 0, 2))


def _cycles(history: History, width: int) -> Iterator[RenderableType]:
    yield _title("Cycles")
    some = history.cycles[-MOST_CYCLES:]
    if len(some) < len(history.cycles):
        yield Text(f"  the last {len(some)} of {len(history.cycles)}; --json and --html have all")
    folded = {card.cycles[0].number: card for card in cards(history) if len(card.cycles) > 1}
    hidden = _hidden(history)
    some = tuple(cycle for cycle in some if cycle.number not in hidden)
    rows = [
        [c.number, clock(c.start, history.start), ran(c, history.until), str(len(c.nodes)), c.ended.value, why(c)]
        for c in some
    ]
    for row, cycle in zip(rows, some, strict=True):
        if card := folded.get(cycle.number):
            row[-1] = f"x{len(card.cycles)}, cycles {card.numbers}: {row[-1]}"
    titles = ["cycle", "began", "ran for", "nodes", "end", "why"]
    if any(made(cycle) for cycle in some):
        titles.insert(4, "workers")
        for row, cycle in zip(rows, some, strict=True):
            row.insert(4, made(cycle).replace(", ", ",\n") if NARROW <= width < WIDE else made(cycle))
    yield _table(titles, rows, width)


def _hidden(history: History) -> set[str]:
    """Return the cycles that failed like the one before: that one's row counts them."""
    return {cycle.number for card in cards(history) for cycle in card.cycles[1:]}


def _losses(history: History, width: int) -> Iterator[RenderableType]:
    failed = [cycle for cycle in history.cycles if cycle.ended is CycleEnd.FAILED][-MOST_CYCLES:]
    if not failed:
        return
    yield _title("Time lost")
    hidden = _hidden(history)
    failed = [cycle for cycle in failed if cycle.number not in hidden]
    parts = parts_of(failed)
    titles = ["cycle", "total", *(part.replace("worker_start", "workers") for part in parts)]
    rows = [_loss(cycle, parts) for cycle in failed]
    yield _table(titles, rows, width, last=False)
    if any("?" in row for row in rows):
        yield Padding(Text("?: not known; only workers' heartbeats show when they began", "dim"), (0, 0, 0, 2))


def _loss(cycle: CycleStory, parts: Sequence[str]) -> list[str]:
    loss = cycle.loss
    if loss is None:
        return [cycle.number, *["?"] * (1 + len(parts))]
    ended = loss.resumed is None
    shown = ["" if ended and part in PARTS[3:] else duration(getattr(loss, part)) for part in parts]
    return [cycle.number, "job ended" if ended else duration(loss.total), *shown]


def _slurm(report: Report, width: int) -> Iterator[RenderableType]:
    yield _title(f"Slurm: job {report.job.partition('.')[0]}")
    titles = ["record", "state", "exit", "start", "took", "nodes"]
    rows = [row for start in report.starts for row in _records(start)]
    yield _table(titles, rows, width)
    comments = dict.fromkeys(row.comment for start in report.starts for row in start.rows if row.comment)
    yield from (Padding(Text(f"comment: {plain(comment)}"), (0, 0, 0, 2)) for comment in comments)


def _records(start: JobStart) -> Iterator[list[str]]:
    for record in (*start.rows, *start.steps):
        name = record.step or (f"restart {start.restart}" if start.restart else "job")
        begun = moment(record.start) if record.start is not None else ""
        yield [name, record.state, str(record.exit_code or ""), begun, duration(record.elapsed), plain(record.nodes)]

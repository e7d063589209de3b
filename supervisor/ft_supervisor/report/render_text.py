"""Renders the report for a terminal or a file, by rich. Nothing depends on colours, and 40 columns are enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich import box
from rich.cells import chop_cells
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ft_supervisor.core.protocol.model import Outcome
from ft_supervisor.core.words import duration, plain
from ft_supervisor.history.model import CycleEnd, CycleStory, FirstFailedWorker, History
from ft_supervisor.report.model import JobStart, Report
from ft_supervisor.report.text_timeline import timeline
from ft_supervisor.report.words import (
    NOTHING_PRINTED,
    clock,
    consequence,
    deed,
    first_failing,
    made,
    moment,
    outcome,
    ran,
    reason,
    since_then,
    summary,
    why,
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
    yield Text.assemble(
        ("\nrun ", "bold"), (history.run_id, "bold"), ": ", (word, "bold green" if good else "bold yellow")
    )
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
    if history.first_failure:
        yield _title("First failing rank")
        yield from _first(history.first_failure, width)
        if later := since_then(history):
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
        f"{clock(fault.at, history.start)} {deed(fault)}{cycle}" for fault, cycle in zip(some, cycles, strict=True)
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
    rows = [
        [c.number, clock(c.start, history.start), ran(c, history.until), str(len(c.nodes)), c.ended.value, why(c)]
        for c in some
    ]
    titles = ["cycle", "began", "ran for", "nodes", "end", "why"]
    if any(made(cycle) for cycle in some):
        titles.insert(4, "workers")
        for row, cycle in zip(rows, some, strict=True):
            row.insert(4, made(cycle).replace(", ", ",\n") if NARROW <= width < WIDE else made(cycle))
    yield _table(titles, rows, width)


def _losses(history: History, width: int) -> Iterator[RenderableType]:
    failed = [cycle for cycle in history.cycles if cycle.ended is CycleEnd.FAILED][-MOST_CYCLES:]
    if not failed:
        return
    yield _title("Time lost")
    titles = ["cycle", "total", "detection", "stop", "decision", "rendezvous", "workers"]
    rows = [_loss(cycle) for cycle in failed]
    yield _table(titles, rows, width, last=False)
    if any("?" in row for row in rows):
        yield Padding(Text("?: not known; only workers' heartbeats show when they began", "dim"), (0, 0, 0, 2))


def _loss(cycle: CycleStory) -> list[str]:
    loss = cycle.loss
    if loss is None:
        return [cycle.number, *["?"] * 6]
    ended = loss.resumed is None
    total = "job ended" if ended else duration(loss.total)
    first = [duration(each) for each in (loss.detection, loss.stop, loss.decision)]
    return [cycle.number, total, *first, *(["", ""] if ended else map(duration, (loss.rendezvous, loss.worker_start)))]


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

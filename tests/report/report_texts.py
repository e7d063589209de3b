"""Reports from recorded runs and recorded output of sacct, for the tests of their renderers."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tests.ft_slurm.fake_slurm import RECORDED
from tests.history.recordings import recorded

from ft_slurm.records import AccountingRecord, ExitCode
from ft_slurm.sacct_text import records
from ft_supervisor.history.model import Fault, FirstFailedWorker, History
from ft_supervisor.report.model import Report, join

EVIL = "\x1b[2J</title><script>alert(1)</script>&amp;\"'\x07\u202e [bold]red[/bold] \N{SNOWMAN}"
"""What a training's last line may hold."""


def sacct(name: str) -> tuple[AccountingRecord, ...]:
    """Return a recorded answer of sacct 24.11."""
    return records((RECORDED / "24.11" / f"sacct-{name}.txt").read_text(), 4242)


def row(state: str, start: int, *, step: str = "", code: int = 0, nodes: str = "n0") -> AccountingRecord:
    """Return one record of an invented job."""
    return AccountingRecord(4242, step, state, ExitCode(code, 0), None, start, start + 9, 9, nodes, "")


def report(
    case: str = "takeover",
    slurm: Sequence[AccountingRecord] = (),
    notes: Sequence[str] = (),
    first: FirstFailedWorker | None = None,
    **changes: object,
) -> Report:
    """Return the report of a recorded run, with these fields of its history changed, and one cycle's first failure."""
    history = replace(recorded(case), **changes)  # type: ignore[arg-type]
    return join("4242", [history if first is None else with_first(history, first)], slurm, notes)


def with_first(history: History, first: FirstFailedWorker) -> History:
    """Return the history with this as the first failure of its cycle."""
    cycles = (replace(each, first=first) if each.number == first.cycle else each for each in history.cycles)
    return replace(history, cycles=tuple(cycles))


def evil() -> Report:
    """Return a report with harmful text in every field that others may write."""
    history = recorded("budget-spent")
    assert history.first_failure is not None
    first: FirstFailedWorker = replace(
        history.first_failure, lines=(EVIL, "ok"), source=EVIL, node=EVIL, consequence_of=EVIL
    )
    cycles = tuple(
        replace(cycle, reason=EVIL, began=EVIL, rule=EVIL, cause=EVIL, nodes=(EVIL,)) for cycle in history.cycles
    )
    nodes = tuple(
        replace(node, name=EVIL, spans=tuple(replace(span, reason=EVIL) for span in node.spans))
        for node in history.nodes
    )
    assert history.verdict is not None
    verdict = replace(history.verdict, reason=EVIL)
    faults = (Fault(history.start or 0.0, EVIL, EVIL, EVIL, note=EVIL, cycle=EVIL),)
    changed: History = replace(
        with_first(replace(history, cycles=cycles), first),
        nodes=nodes,
        verdict=verdict,
        faults=faults,
        notes=(EVIL,),
    )
    slurm = [replace(row("FAILED", 100), comment=EVIL, nodes=EVIL)]
    return join("4242", [changed], slurm, [EVIL])


def controls(text: str) -> list[str]:
    """Return the control characters that a terminal would obey."""
    return re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)

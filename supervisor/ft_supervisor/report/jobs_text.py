"""Renders a list of jobs for people and for programs. Pure, except for the time zone, which is the reader's.

The JSON has version 1: keys may be added, but the meaning of a key changes only with the version. Times are seconds
since the epoch; null stands for unknown values; Slurm's exit codes have sacct's form, "75:0".

    {"version": 1, "since": "2026-01-31",
     "jobs": [                            in the order in which they were submitted
       {"job", "job_id", "name", "work_dir",    "12_3", 14, the job's name, its folder
        "outcome",                        success, failed, interrupted, cancelled, running, pending, unknown
        "source",                         where the outcome is from: file (verdict.json), comment, slurm
        "exit_code", "summary", "reason", the verdict's; null and "" without one; the reason is in verdict.json alone
        "contradicts",                    it succeeded and Slurm calls it a failure, or the other way round
        "restarts",                       earlier runs of it in sacct's records
        "slurm": {"state", "exit_code", "derived_exit_code", "start", "end", "nodes"}}],
     "fixed": [{"job", "derived_exit_code"}],   the changes by --fix-exit-codes
     "notes": [missing data, for people],
     "efficiency": {"jobs": {ID: SUM}, "all": SUM}}

SUM is the account of one job's time, or of all jobs' that have journals; docs/jobs.md explains it:

    {"ettr", "exact",                     0 to 1; whether nothing is missing, else it is at most that
     "available", "parts": {PART: ...},   seconds; the parts (report.efficiency) add up to it; null without journals
     "failures", "between_failures",      seconds of training per failure, null without one
     "lost_by_cause", "lost_by_node",     seconds by name
     "lost_by_hang",                      the same of hangs, by who began them, and where
     "checkpoints": {"number", "cost", "every"},   seconds, as measured; null where nothing tells
     "interval": null | {"save", "every", "best", "waste", "least", "won"}}   by Young's and Daly's rule
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size

from ft_slurm.records import ExitCode
from ft_supervisor.core.protocol.model import Outcome
from ft_supervisor.core.words import count, one_line, plain
from ft_supervisor.report.efficiency import Efficiency
from ft_supervisor.report.jobs import ListedJob
from ft_supervisor.report.jobs_sources import Listing
from ft_supervisor.report.words import share, zone

VERSION = 1
NARROW = 110
"""Columns. In a narrower terminal a job's summary has a line of its own."""
_HEAD = ("JOB", "  OUTCOME", "SLURM", "ETTR", "END", "NAME")
_MOST = (16, 13, 20, 8, 11, 16)
"""Width of each column in a terminal. The last column is cut first: NAME down to _LEAST, then END as a whole. ETTR is
left out if no job has one; `<` before it: at most that."""
_LEAST = 4
_MARK = "! "
MOST_REASON = 60
"""Characters of the reason of a job that did not succeed."""


def as_json(listing: Listing, since: str, more: Mapping[str, Any] | None = None) -> str:
    """Return one JSON object, with a line end. `more`: further keys."""
    fixed = [
        {"job": job.row.name, "derived_exit_code": str(ExitCode(job.verdict.code, 0))}
        for job in listing.fixed
        if job.verdict
    ]
    value = {
        "version": VERSION,
        "since": since,
        "jobs": [_plain(job) for job in listing.jobs],
        "fixed": fixed,
        "notes": listing.notes,
        **(more or {}),
    }
    return json.dumps(value, indent=1) + "\n"


def _plain(job: ListedJob) -> dict[str, Any]:
    row, verdict = job.row, job.verdict
    return {
        "job": row.name,
        "job_id": row.job_id,
        "name": row.job_name,
        "work_dir": row.work_dir,
        "outcome": job.outcome,
        "source": verdict.source if verdict else "slurm",
        "exit_code": verdict.code if verdict else None,
        "summary": verdict.summary if verdict else "",
        "reason": verdict.reason if verdict else "",
        "contradicts": job.contradicts,
        "restarts": job.restarts,
        "slurm": {
            "state": job.state.name,
            "exit_code": row.exit_code and str(row.exit_code),
            "derived_exit_code": row.derived_exit_code and str(row.derived_exit_code),
            "start": job.began,
            "end": row.end,
            "nodes": row.nodes,
        },
    }


def as_text(listing: Listing, since: str, width: int | None, more: Sequence[str] = ()) -> str:
    """Return a line for each job, followed by remarks. `width`: the terminal's columns, in which each line fits; None
    for a pipe, where nothing is cut. `more`: further lines."""
    jobs = listing.jobs
    lines = _table(listing, width) if jobs else [f"no such jobs since {plain(since)}"]
    contradicting = sum(job.contradicts for job in jobs)
    if contradicting:
        lines.append(f"!: Slurm says otherwise ({contradicting} of {count(len(jobs), 'job')})")
    fixed = {job.row.job_id for job in listing.fixed}
    for job in listing.fixed:
        assert job.verdict is not None
        former, now = job.row.derived_exit_code or "unknown", ExitCode(job.verdict.code, 0)
        lines.append(f"{job.row.name}: DerivedExitCode was {former}, is {now}")
    wrong = sum(job.wrong_code and job.row.job_id not in fixed for job in jobs)
    if wrong:
        verb = "has" if wrong == 1 else "have"
        lines.append(f"{count(wrong, 'job')} {verb} a DerivedExitCode that is not the verdict's (--fix-exit-codes)")
    lines += [*more, *(f"note: {plain(note)}" for note in listing.notes)]
    return "".join(f"{line}\n" for line in (_fold(lines, width) if width is not None else lines))


def _table(listing: Listing, width: int | None) -> list[str]:
    rows = [_cells(job, listing.accounts.get(job.row.job_id)) for job in listing.jobs]
    ratios = any(cells[_HEAD.index("ETTR")] for cells, _ in rows)
    shown = [number for number, name in enumerate(_HEAD) if ratios or name != "ETTR"]
    rows = [(tuple(cells[number] for number in shown), text) for cells, text in rows]
    head = tuple(f"{_HEAD[number]} ({zone()})" if _HEAD[number] == "END" else _HEAD[number] for number in shown)
    columns = zip(head, *(cells for cells, _ in rows), strict=True)
    sizes = [max(cell_len(cell) for cell in column) for column in columns]
    narrow = width is not None and width < NARROW
    if width is not None:
        sizes = [min(size, _MOST[number]) for size, number in zip(sizes, shown, strict=True)]
        if (rest := width - sum(sizes[:-1]) - 2 * len(sizes[:-1])) < _LEAST:  # of a name; END is left out, not cut
            sizes = sizes[: -1 if rest + 2 >= 0 else -2]
    last = "" if narrow else "SUMMARY"
    lines = [_line(head, sizes, last, width)]
    for cells, text in rows:
        lines.append(_line(cells, sizes, "" if narrow else text, width))
        if narrow and text:
            lines.append(_cut(f"    {text}", width))
    return lines


def _cells(job: ListedJob, account: Efficiency | None) -> tuple[tuple[str, ...], str]:
    row = job.row
    ratio = "" if account is None or account.ettr is None else f"{'' if account.exact else '<'}{share(account.ettr)}"
    end = "" if row.end is None else f"{datetime.fromtimestamp(row.end).astimezone():%m-%d %H:%M}"
    code = "" if row.exit_code in (None, ExitCode(0, 0)) else f" {row.exit_code}"
    outcome = f"{_MARK if job.contradicts else '  '}{job.outcome}"
    cells = (plain(row.name), outcome, f"{plain(job.state.name)}{code}", ratio, end, plain(row.job_name))
    return cells, summary(job)


def summary(job: ListedJob) -> str:
    """Return the verdict's line, for a job that did not succeed with the beginning of the reason."""
    if job.verdict is None:
        return ""
    reason = one_line(job.verdict.reason, MOST_REASON)
    shown = "" if job.verdict.outcome is Outcome.SUCCESS or job.verdict.summary.endswith(reason) else reason
    return plain(": ".join(filter(None, (job.verdict.summary, shown))))


def _line(cells: Sequence[str], sizes: Sequence[int], text: str, width: int | None) -> str:
    fitted = [set_cell_size(cell, size) for cell, size in zip(cells, sizes, strict=False)]
    return _cut("  ".join([*fitted, text]).rstrip(), width)


def _cut(line: str, width: int | None) -> str:
    if width is None or cell_len(line) <= width:
        return line
    return set_cell_size(line, width - 1).rstrip() + "…"


def _fold(lines: Sequence[str], width: int) -> list[str]:
    """Break lines that are not of the table and do not fit."""
    folded: list[str] = []
    for line in lines:
        while cell_len(line) > width:
            at = line.rfind(" ", 1, width)
            at = at if at > 0 else width
            folded.append(line[:at])
            line = line[at:].lstrip()
        folded.append(line)
    return folded

"""A list of jobs for people and for programs. Pure, but for the time zone, which is the reader's.

As JSON, version 1: a key is only ever added; what one means changes with the version alone. Times are seconds since the
epoch; null stands for what is not known; exit codes of Slurm's are as sacct writes them, "75:0".

    {"version": 1, "since": "2026-01-31",
     "jobs": [                            in the order in which they were submitted
       {"job", "job_id", "name", "work_dir",    "12_3", 14, the job's name, its folder
        "outcome",                        success, failed, interrupted, cancelled, running, pending, unknown
        "source",                         what the outcome is by: file (verdict.json), comment, slurm
        "exit_code", "summary",           the verdict's; null and "" without one
        "contradicts",                    Slurm calls a failure what was a success, or the other way round
        "restarts",                       earlier runs of it that sacct has told of
        "slurm": {"state", "exit_code", "derived_exit_code", "start", "end", "nodes"}}],
     "fixed": [{"job", "derived_exit_code"}],   what --fix-exit-codes has changed, and to what
     "notes": [what is missing]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size

from ft_slurm.records import ExitCode
from ft_supervisor.core.words import count, plain
from ft_supervisor.report.jobs import ListedJob
from ft_supervisor.report.jobs_sources import Listing

VERSION = 1
NARROW = 110
"""Columns below which what a job tells stands in a line of its own."""
_HEAD = ("JOB", "  OUTCOME", "SLURM", "END", "NAME")
_MOST = (16, 13, 20, 11, 16)
"""Columns of each, in a terminal: what comes last is cut first, END as a whole, and NAME to _LEAST."""
_LEAST = 4
_MARK = "! "


def as_json(listing: Listing, since: str) -> str:
    """One JSON object, with a line end."""
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
    }
    return json.dumps(value, indent=1) + "\n"


def _plain(job: ListedJob) -> dict[str, Any]:
    row, told = job.row, job.verdict
    return {
        "job": row.name,
        "job_id": row.job_id,
        "name": row.job_name,
        "work_dir": row.work_dir,
        "outcome": job.outcome,
        "source": told.source if told else "slurm",
        "exit_code": told.code if told else None,
        "summary": told.summary if told else "",
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


def as_text(listing: Listing, since: str, width: int | None) -> str:
    """A line for each job, and below them what is to be known. `width`: the terminal's columns, in which each line
    fits; None for a pipe, where nothing is cut."""
    jobs = listing.jobs
    lines = _table(jobs, width) if jobs else [f"no such jobs since {plain(since)}"]
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
    lines += [f"note: {plain(note)}" for note in listing.notes]
    return "".join(f"{line}\n" for line in (_fold(lines, width) if width is not None else lines))


def _table(jobs: Sequence[ListedJob], width: int | None) -> list[str]:
    rows = [_cells(job) for job in jobs]
    columns = zip(_HEAD, *(cells for cells, _ in rows), strict=True)
    sizes = [max(cell_len(cell) for cell in column) for column in columns]
    narrow = width is not None and width < NARROW
    if width is not None:
        sizes = [min(size, most) for size, most in zip(sizes, _MOST, strict=True)]
        if (rest := width - sum(sizes[:4]) - 2 * 4) < _LEAST:  # of a name; and half a date tells nothing
            sizes = sizes[: 4 if rest + 2 >= 0 else 3]
    told = "" if narrow else "TOLD"
    lines = [_line(_HEAD, sizes, told, width)]
    for cells, text in rows:
        lines.append(_line(cells, sizes, "" if narrow else text, width))
        if narrow and text:
            lines.append(_cut(f"    {text}", width))
    return lines


def _cells(job: ListedJob) -> tuple[tuple[str, ...], str]:
    row = job.row
    end = "" if row.end is None else f"{datetime.fromtimestamp(row.end).astimezone():%m-%d %H:%M}"
    code = "" if row.exit_code in (None, ExitCode(0, 0)) else f" {row.exit_code}"
    outcome = f"{_MARK if job.contradicts else '  '}{job.outcome}"
    cells = (plain(row.name), outcome, f"{plain(job.state.name)}{code}", end, plain(row.job_name))
    return cells, plain(job.verdict.summary) if job.verdict else ""


def _line(cells: Sequence[str], sizes: Sequence[int], text: str, width: int | None) -> str:
    fitted = [set_cell_size(cell, size) for cell, size in zip(cells, sizes, strict=False)]
    return _cut("  ".join([*fitted, text]).rstrip(), width)


def _cut(line: str, width: int | None) -> str:
    if width is None or cell_len(line) <= width:
        return line
    return set_cell_size(line, width - 1).rstrip() + "…"


def _fold(lines: Sequence[str], width: int) -> list[str]:
    """What no line of the table is may go on in the next line."""
    folded: list[str] = []
    for line in lines:
        while cell_len(line) > width:
            at = line.rfind(" ", 1, width)
            at = at if at > 0 else width
            folded.append(line[:at])
            line = line[at:].lstrip()
        folded.append(line)
    return folded

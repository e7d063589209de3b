"""Renders the list of known runs for people and for programs. Pure, except for the time zone, which is the reader's.

The JSON has version 1; times are seconds since the epoch; null stands for unknown values:

    {"version": 1,
     "runs": [                            the newest first
       {"job", "local",                   "12_3"; whether it is a run of `ft-supervisor local`
        "name", "state",                  success, failed, interrupted, cancelled, running, stale, unknown, not begun
        "time",                           when it ended, was last seen or was submitted
        "active", "nodes",                how many nodes train or trained, how many the job has
        "summary", "folder"}]}            the verdict's line, ""; the run's folder
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from rich.cells import cell_len, set_cell_size

from ft_supervisor.core.words import plain
from ft_supervisor.status.known_runs import KnownRun

VERSION = 1
_HEAD = ("JOB", "NAME", "STATE", "WHEN", "NODES", "SUMMARY")
_MOST_NAME = 24


def as_json(found: Sequence[KnownRun]) -> str:
    """Return one JSON object, with a line end."""
    each = [
        {
            "job": run.job,
            "local": run.local,
            "name": run.name,
            "state": run.state,
            "time": round(run.at, 3),
            "active": run.active,
            "nodes": run.nodes,
            "summary": run.summary,
            "folder": None if run.folder is None else str(run.folder),
        }
        for run in found
    ]
    return json.dumps({"version": VERSION, "runs": each}, indent=1) + "\n"


def as_text(found: Sequence[KnownRun], width: int | None) -> str:
    """Return a line for each run. `width`: the terminal's columns, in which each line fits; None for a pipe, where
    nothing is cut."""
    if not found:
        return "no runs are known here: neither in your index of runs nor below the current folder\n"
    zone = datetime.now().astimezone().tzname()
    rows = [(*_HEAD[:3], f"{_HEAD[3]} ({zone})", *_HEAD[4:]), *map(_cells, found)]
    if width is not None:
        rows = [(job, _cut(name, _MOST_NAME), *rest) for job, name, *rest in rows]
    sizes = [max(cell_len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = (_line(row, sizes) for row in rows)
    return "".join(f"{line if width is None else _cut(line, width)}\n" for line in lines)


def _cells(run: KnownRun) -> tuple[str, ...]:
    when = f"{datetime.fromtimestamp(run.at).astimezone():%m-%d %H:%M}"
    counts = "" if run.nodes is None else f"{run.active} of {run.nodes}"
    return plain(run.job), plain(run.name), run.state, when, counts, plain(run.summary)


def _line(row: Sequence[str], sizes: Sequence[int]) -> str:
    return "  ".join(set_cell_size(cell, size) for cell, size in zip(row, sizes, strict=True)).rstrip()


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"

"""Makes docs/reference/formats.md: the formats for programs, from the docstrings of the modules that write them."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator
from types import ModuleType

from ft_docs.text import code, page
from ft_supervisor.doctor import environment
from ft_supervisor.doctor import render as doctor_render
from ft_supervisor.doctor.finding import Level
from ft_supervisor.fault import record
from ft_supervisor.journal import journal
from ft_supervisor.report import jobs_text, render_json
from ft_supervisor.run_folder import snapshot
from ft_supervisor.status import judgement, render_runs

INTRO = """\
The output of commands with `--json`, and the files of a run that are for other programs. Each format but that of
`faults.jsonl` has a version. Within a version keys may be added, and none is removed. Two files are stricter, as
ft-supervisor reads them itself: in status.json and in the journal every change of the keys is a new version. Names such
as history.model are modules of ft_supervisor."""

SECTIONS = {
    "ft-supervisor status --json": judgement,
    "ft-supervisor report JOB --json": render_json,
    "ft-supervisor report --since TIME --json": jobs_text,
    "ft-supervisor list --json": render_runs,
    "RUN_DIR/RUN_ID/status.json": snapshot,
    "RUN_DIR/RUN_ID/journal/NODE/journal-*.jsonl": journal,
    "RUN_DIR/RUN_ID/faults.jsonl": record,
}
"""Headings, with the modules whose docstrings are below them."""


def render() -> str:
    """Return the whole page."""
    parts = ["## ft-supervisor doctor --json", _doctor()]
    for heading, module in SECTIONS.items():
        parts += [f"## {heading}", *words(module)]
        if module is snapshot:
            names = ", ".join(code(field.name) for field in dataclasses.fields(snapshot.Snapshot))
            parts.append(f"Its fields are {names}.")
    return page("Formats", INTRO, *parts)


def _doctor() -> str:
    told = json.loads(doctor_render.as_json([], "WHERE", "HOST"))
    keys = ", ".join(map(code, told))
    return (
        f"Version {doctor_render.VERSION}. One object with {keys}. `where` is one of {', '.join(environment.Where)}; "
        f"each finding has `check`, a name that stays the same, `level` ({', '.join(Level)}), `text`, and `todo`, what "
        "to do about it."
    )


def words(module: ModuleType) -> Iterator[str]:
    """Yield the module's docstring without its first paragraph, which is for readers of the code."""
    for at, paragraph in enumerate((inspect.getdoc(module) or "").split("\n\n")):
        lines = paragraph.split("\n")
        if all(line.startswith("    ") for line in lines):
            yield "\n".join(["```text", *(line[4:] for line in lines), "```"])
        elif at:
            yield paragraph

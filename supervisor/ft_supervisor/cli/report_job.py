"""Gathers and writes one job's report. Apart from cli.report, as it loads rich."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from ft_slurm.errors import NoCommands, SlurmError
from ft_supervisor.cli.output import write_file
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.report import render_html, render_json, render_text
from ft_supervisor.report.model import Report, join
from ft_supervisor.report.sources import LOOK_BOUND, ReportSources, ask_slurm, look_for_runs
from ft_supervisor.run_folder import find, runs


def gather(
    job: str | None, config: Path | None, run_dir: Path | None, environ: Mapping[str, str]
) -> tuple[ReportSources, Report]:
    """Gather all that is known. Raises find.WrongUse, ConfigError and OSError."""
    search = find.search(job, config, run_dir, environ)
    found, wanted, places = ReportSources(), search.wanted, list(search.places)
    if wanted is None:
        newest = _newest(search, found)
        if newest is None:
            why = "" if found.hangs else f"There is no run in {search.shown}, and "
            found.notes.append(f"which job? {why}$SLURM_JOB_ID is not set")
            return found, join("", [], (), found.notes)
        wanted, places = runs.parse(newest.name), [newest.parent]
        assert wanted is not None
    look_for_runs(places, wanted, found)
    ask_slurm(wanted.job_id, environ, found)
    if not found.histories and not found.hangs:
        if more := _by_slurm(search, environ, found):
            look_for_runs(more, wanted, found)
            places += more
        if not found.histories:
            shown = " or ".join(map(str, dict.fromkeys(places)))
            found.notes.append(f"no run of job {wanted} in {shown}; --config or --run-dir say where else")
    return found, join(str(wanted), found.histories, found.records, found.notes, now=time.time())


def _newest(search: find.RunSearch, found: ReportSources) -> Path | None:
    try:
        return Background("run_dir", lambda: find.folder(search)).result(LOOK_BOUND)
    except Hangs:
        found.hangs = True
        found.notes.append(f"run_dir does not answer within {LOOK_BOUND:g} s: {search.shown}")
        return None


def _by_slurm(search: find.RunSearch, environ: Mapping[str, str], found: ReportSources) -> list[Path]:
    """Return the places where Slurm's accounting records that the job was submitted."""
    try:
        return [place for place in find.by_slurm(search, environ).places if place not in search.places]
    except NoCommands:
        return []
    except SlurmError as error:
        found.notes.append(f"Slurm does not tell where the job was submitted: {error}")
        return []


# -- written


def as_text(report: Report) -> str:
    """Return the text for the terminal that stdout is, or for a file."""
    return render_text.render(report)


def as_brief(report: Report) -> str:
    """Return the report in five lines."""
    return render_text.brief(report)


def as_json(report: Report) -> str:
    """Return the JSON; see report.render_json."""
    return render_json.render(report)


def write_page(report: Report, path: Path) -> None:
    """Write the whole page or nothing. Raises OSError."""
    write_file(render_html.render(report), path)

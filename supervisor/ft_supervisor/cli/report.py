"""`ft-supervisor report`: what happened to a job?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.cli.output import put
from ft_supervisor.core.words import one_line
from ft_supervisor.run_folder import find

if TYPE_CHECKING:
    from ft_supervisor.report.model import Report

OK, NOTHING_KNOWN, IN_PART = 0, 3, 4


def report(
    job: find.JobId = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="Print five lines.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", parser=Path, help="Write a page for a browser.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="List your jobs: yesterday, today, 2026-01-31, now-3days, ..."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="WORDS",
            help="Of those only success, failed, interrupted, cancelled, running, pending, unknown.",
        ),
    ] = None,
    fix_exit_codes: Annotated[
        bool, typer.Option("--fix-exit-codes", help="Make the verdict's exit code their DerivedExitCode, too.")
    ] = False,
    save: Annotated[
        float | None,
        typer.Option("--save", metavar="SECONDS", min=0.001, help="How long a checkpoint takes, if not measured."),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="SECONDS", min=0.001, help="The time between two, if not measured."),
    ] = None,
) -> None:
    """Shows what happened to a job, why, and what it cost.

    It is made from the journals and the verdict in run_dir and from Slurm's accounting, as far as they exist; for a
    running job, up to now. It has all runs of the job, the newest first.

    \b
    Examples:
      ft-supervisor report 1234                     in any folder
      ft-supervisor report 1234_5                   a task of a job array
      ft-supervisor report 1234 --brief             five lines
      ft-supervisor report 1234 --html report.html  one file, to send
      ft-supervisor report --since yesterday        how my jobs ended
      ft-supervisor report --since now-7days --state failed,interrupted
      ft-supervisor report --since 30d --html jobs.html

    \b
    Exit codes:
        0  the report is complete
        2  wrong command line or configuration, or FILE cannot be written
        3  nothing is known of this job; --since: Slurm's accounting is away
        4  known in part: the newest run has no journal; --since: see the notes
    """
    if since is None and (state is not None or fix_exit_codes):
        raise typer.Exit(complain("--state and --fix-exit-codes go with --since"))
    if since is not None and (job is not None or brief):
        raise typer.Exit(complain("--since lists all jobs: it goes with neither JOB nor --brief"))
    if since is None and (save is not None or every is not None):
        raise typer.Exit(complain("--save and --every go with --since"))
    if since is not None:
        asked = since, state, config, run_dir, fix_exit_codes, save, every
        raise typer.Exit(guarded(lambda: _many(asked, as_json, html)))
    raise typer.Exit(guarded(lambda: _one(job, config, run_dir, as_json, html, brief)))


def _one(
    job: str | None, config: Path | None, run_dir: Path | None, as_json: bool, html: Path | None, brief: bool
) -> int:
    from ft_supervisor.cli import report_job

    try:
        found, told = report_job.gather(job, config, run_dir, os.environ)
        code = _write(told, as_json, html, brief)
    except (find.WrongUse, OSError) as error:
        return complain(error)
    if found.hangs:
        os._exit(code)  # a thread still waits for the file system
    return code


def _write(told: Report, as_json: bool, html: Path | None, brief: bool) -> int:
    """Write the report and return the exit code. Raises OSError."""
    from ft_supervisor.cli import report_job

    if told.empty:
        complain(one_line("; ".join(told.notes), 2000))
        return NOTHING_KNOWN
    if html is not None:
        report_job.write_page(told, html)
    if as_json:
        put(report_job.as_json(told))
    elif html is None:
        put(report_job.as_brief(told) if brief else report_job.as_text(told))
    else:
        put(f"{html}\n")
    return OK if told.has_journal else IN_PART


def _many(asked: tuple[Any, ...], as_json: bool, html: Path | None) -> int:
    """List all jobs of the user since then, and return the exit code."""
    from ft_slurm.errors import SlurmError
    from ft_slurm.sacct_jobs import BadTime
    from ft_supervisor.cli import report_jobs

    try:
        query = report_jobs.ListQuery(*asked)
        listing = report_jobs.gather(query, os.environ)
        if html is not None:
            report_jobs.write_page(listing, query, html)
    except (find.WrongUse, BadTime, OSError) as error:
        return complain(error)
    except SlurmError as error:
        complain(error)
        return NOTHING_KNOWN
    if as_json:
        put(report_jobs.as_json(listing, query))
    else:
        put(report_jobs.as_text(listing, query) if html is None else f"{html}\n")
    code = IN_PART if listing.notes else OK
    if listing.hangs:
        os._exit(code)
    return code

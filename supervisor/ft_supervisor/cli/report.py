"""`ft-supervisor report`: what happened to a job?"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ft_supervisor.cli import find
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.core.model import one_line

OK, NOTHING_KNOWN, IN_PART = 0, 3, 4


def report(
    job: find.JobId = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page for a browser.")] = None,
) -> None:
    """Tells a job's story: its nodes, cycles and failures, why, and the time that they took.

    Made of the journals and the verdict in run_dir and of Slurm's accounting, as far as they are there; of a running
    job, as far as it has come. All runs of the job are told, the newest first.

    \b
    Examples:
      ft-supervisor report 1234                        from where the job was submitted
      ft-supervisor report 1234 --config job.yaml      where job.yaml names a run_dir of its own
      ft-supervisor report 1234 --html report.html     one file, to look at or to send

    \b
    Exit codes:
        0  told
        2  the command line or the configuration is wrong, or FILE cannot be written
        3  nothing is known of this job
        4  known in part: its newest run has no journal that can be read
    """
    raise typer.Exit(guarded(lambda: _one(job, config, run_dir, as_json, html)))


def _one(job: str | None, config: Path | None, run_dir: Path | None, as_json: bool, html: Path | None) -> int:
    from ft_supervisor.cli import report_job

    try:
        found, told = report_job.gather(job, config, run_dir, os.environ)
        if told.empty:
            complain(one_line("; ".join(told.notes), 2000))
            return NOTHING_KNOWN
        if html is not None:
            report_job.write_page(told, html)
        if as_json:
            _put(report_job.as_json(told))
        elif html is None:
            _put(report_job.as_text(told))
        else:
            _put(f"{html}\n")
    except (find.WrongUse, OSError) as error:
        return complain(error)
    code = OK if told.told else IN_PART
    if found.hangs:
        os._exit(code)  # a thread waits for the file system still
    return code


def _put(text: str) -> None:
    """To stdout, whose reader may have had enough (`| head`), and whose encoding may lack some letters."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor shall the interpreter's end complain

"""`ft-supervisor verdict`: how did a job end?"""

from __future__ import annotations

import os
from pathlib import Path

import typer

from ft_supervisor.cli import find
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.core.model import INTERRUPTED, Outcome, Verdict
from ft_supervisor.observe import verdict_file
from ft_supervisor.observe.verdict_file import BadVerdictFile


def verdict(
    job: find.JobId = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
) -> None:
    """Prints how a job ended and exits with its code; with 75 when there is no verdict (yet).

    Of several runs of a job (srun called twice, or the job requeued) the newest counts.

    \b
    Examples:
      ft-supervisor verdict --config job.yaml          in the batch script, after its srun line
      ft-supervisor verdict 1234 --config job.yaml     from where the job was submitted
      ft-supervisor verdict 1234 --run-dir ft-runs/1234
    """
    raise typer.Exit(guarded(lambda: _run(job, config, run_dir)))


def _run(job: str | None, config: Path | None, run_dir: Path | None) -> int:
    job = job or os.environ.get("SLURM_JOB_ID")
    if not job:
        return complain("which job? $SLURM_JOB_ID is not set")
    if config is None and run_dir is None:
        return complain("give either --config or --run-dir")
    try:
        search = find.search(job, config, run_dir, os.environ)
        folder = find.folder(search)
        found = verdict_file.read(folder, folder.name) if folder else None
    except find.WrongUse as error:
        return complain(error)
    except BadVerdictFile as error:
        found = Verdict(Outcome.FAILED, str(error))  # as in the store: what is no verdict is never success
    except OSError as error:
        return complain(error)
    if found is None:
        typer.echo(f"no verdict of job {job} in {search.shown}")
        return INTERRUPTED
    typer.echo(f"{found.outcome}: {found.reason}")
    return found.exit_code

"""`ft-supervisor verdict`: how did a job end?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ft_supervisor import config as configuration
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.core.model import INTERRUPTED, Outcome, Verdict
from ft_supervisor.observe import runs
from ft_supervisor.observe.verdict_file import BadVerdictFile


def verdict(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="JOB, JOB.STEP or a run id; $SLURM_JOB_ID by default.", show_default=False
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The job's YAML file, which names its run_dir.")
    ] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", metavar="DIR", help="The job's run_dir itself.")] = None,
) -> None:
    """Prints how a job ended and exits with its code; with 75 when there is no verdict (yet).

    Of several runs of a job (srun called twice, or the job requeued) the newest counts.

    \b
    Examples:
      ft-supervisor verdict --config job.yaml          in the batch script, after its srun line
      ft-supervisor verdict 1234 --config job.yaml     from where the job was submitted
      ft-supervisor verdict 1234 --run-dir ft-runs/1234
    """
    raise typer.Exit(guarded(lambda: _run(job or os.environ.get("SLURM_JOB_ID"), config, run_dir)))


def _run(job: str | None, path: Path | None, run_dir: Path | None) -> int:
    wanted = runs.parse(job) if job else None
    if wanted is None:
        return complain(
            f"{job!r} is no job: give 1234, 1234.0 or a run id" if job else "which job? $SLURM_JOB_ID is not set"
        )
    if (path is None) == (run_dir is None):
        return complain("give either --config or --run-dir")
    if path is not None:
        settings = configuration.load(path, command=("true",), environ=os.environ)
        run_dir = runs.run_dir(settings.run_dir, Path(os.environ.get("SLURM_SUBMIT_DIR") or Path.cwd()), wanted.job_id)
    assert run_dir is not None
    try:
        found = runs.newest(run_dir, wanted)
    except BadVerdictFile as error:
        found = Verdict(Outcome.FAILED, str(error))  # as in the store: what is no verdict is never success
    except OSError as error:
        return complain(error)
    if found is None:
        typer.echo(f"no verdict of job {job} in {run_dir}")
        return INTERRUPTED
    typer.echo(f"{found.outcome}: {found.reason}")
    return found.exit_code

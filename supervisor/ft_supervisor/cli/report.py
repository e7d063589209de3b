"""`ft-supervisor report`: what happened to a job?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ft_supervisor.cli.errors import guarded


def report(
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page for a browser.")] = None,
) -> None:
    """Tells a job's story: its nodes, cycles, failures, and the time that they took."""
    raise typer.Exit(guarded(lambda: _one(job or os.environ.get("SLURM_JOB_ID"), config, run_dir, as_json, html)))


def _one(job: str | None, config: Path | None, run_dir: Path | None, as_json: bool, html: Path | None) -> int:
    """One job."""
    raise NotImplementedError

"""`ft-supervisor stacks`: what do the workers of a job do just now?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ft_supervisor.cli import running_job
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.cli.output import put
from ft_supervisor.fault.messages import FaultError
from ft_supervisor.run_folder import find
from ft_supervisor.stacks import shell


def stacks(
    job: find.JobId = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
    rank: Annotated[
        int | None,
        typer.Option("--rank", min=0, metavar="R", help="The stacks of this rank alone.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Prints what the workers of a running job do just now.

    First which ranks look alike, and which stand out; then the stacks.

    It does not disturb the workers: no signal is sent, and none is stopped. It asks torch's worker server in each
    worker, which answers even while the GIL is held, else py-spy, else the kernel. Run it on a login node, on a node of
    the job, or on the machine on which `ft-supervisor local` runs.

    \b
    Examples:
      ft-supervisor stacks 1234
      ft-supervisor stacks 1234 --rank 37
      ft-supervisor stacks --run-dir ft-runs       the newest run in there
      ft-supervisor stacks 1234 --json

    \b
    Exit codes:
        0  printed
        2  this cannot be asked for
        3  no such job or rank (any more)
        4  not allowed: the job is another user's
       75  no answer from Slurm or from the nodes
    """
    raise typer.Exit(guarded(lambda: _run(job, config, run_dir, rank, as_json)))


def _run(job: str | None, config: Path | None, run_dir: Path | None, rank: int | None, as_json: bool) -> int:
    try:
        return shell.run(running_job.wanted(job, config, run_dir, "its number"), rank, as_json, os.environ, put)
    except FaultError as problem:
        complain(problem)
        return problem.code

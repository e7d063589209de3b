"""`ft-supervisor doctor`: what is wrong here?"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from ft_supervisor import config as configuration
from ft_supervisor.cli.output import put
from ft_supervisor.config import ConfigError, JobConfig
from ft_supervisor.doctor import environment, finding, render, shell
from ft_supervisor.submit import cluster


def doctor(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", parser=Path, help="The job's YAML file: its run_dir, names and so on."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON, when all is looked at.")] = False,
) -> None:
    """Checks that this machine has what a job needs.

    Each check is a line that says ok, warn or fail, and what to do.

    On a login node it looks at Slurm and the installation; in a batch script or under salloc also at the job and, by
    srun, at all of its nodes; on a machine without Slurm at the machine. It takes 75 seconds at most, and leaves
    nothing behind.

    \b
    Examples:
      ft-supervisor doctor --config job.yaml
      ft-supervisor doctor --json
      salloc -N4 --no-kill ft-supervisor doctor --config job.yaml

    \b
    Exit codes:
      0  nothing says fail
      1  something does
      2  the command line is wrong
    """
    raise typer.Exit(_run(config, as_json))


def _run(path: Path | None, as_json: bool) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        return _look(path, as_json)
    finally:  # also after Ctrl-C, a closed pipe, or a check that hangs
        shell.clean_up()


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _look(path: Path | None, as_json: bool) -> int:
    settings, problem, note = _load(path)
    here = environment.detect(os.environ, settings)
    found = []
    width = shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None
    for each in shell.run(shell.checks(here, problem, note)):
        found.append(each)
        if not as_json:
            put("\n".join(render.lines(each, width)) + "\n")
    put((render.as_json(found, here.where.value, here.host) if as_json else render.summary(found)) + "\n")
    return finding.exit_code(found)


def _load(path: Path | None) -> tuple[JobConfig | None, str, str]:
    """Return the configuration, or why there is none; and which parts of it are unknown."""
    if path is None:
        return None, "", ""
    environ, note = cluster.environment(os.environ)
    try:
        found = configuration.load(path, needs_command=False, environ=environ)
        return found, "", cluster.concerns(found, note)
    except ConfigError as error:
        return None, " | ".join(error.lines), note

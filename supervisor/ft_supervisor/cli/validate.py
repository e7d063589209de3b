"""`ft-supervisor validate`: are the files right?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ft_supervisor import config as configuration
from ft_supervisor.cli.errors import complain, guarded, warn_of_variables
from ft_supervisor.config import JobConfig, command
from ft_supervisor.core.words import one_line

LONGEST = 2000
"""Characters of a line, at most."""


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE...", parser=Path, help="Jobs or policies.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", parser=Path, help="One more of them.")
    ] = None,
) -> None:
    """Checks files of jobs and policies.

    Each FILE gets one line. The exit code is 0, or 2 when one of them is wrong. A job would refuse to start with such a
    file, with the same message. A command or script that does not exist here is a warning, as it may exist on the
    nodes.

    A job is checked together with its cluster's policy and the environment, a policy above default.yaml alone.

    \b
    Examples:
      ft-supervisor validate job.yaml
      ft-supervisor validate /etc/ft-supervisor/clusters/*.yaml job.yaml
    """
    wanted = [*(files or []), *([config] if config else [])]
    if not wanted:
        raise typer.Exit(complain("which file? `ft-supervisor validate job.yaml`"))
    warn_of_variables()
    raise typer.Exit(max([guarded(lambda path=path: _one(path)) for path in wanted]))  # type: ignore[misc]


def _one(path: Path) -> int:
    if not configuration.is_job(path):
        configuration.load_policy(path, environ=os.environ)
        typer.echo(f"{path}: ok: policy")
        return 0
    settings = configuration.load(path, environ=os.environ)
    note = f"; {settings.policy_note}" if settings.policy_note else ""
    text = f"{path}: ok: job {settings.name}, {_active(settings)}, {settings.per_node} workers each{note}"
    typer.echo(one_line(text, LONGEST))
    if what := command.missing(settings.command, settings.env, Path.cwd(), os.environ):
        todo = "fine if it is there on the nodes, in the folder that the job is submitted from; doctor looks there"
        complain(f"warning: workers.command: {what} here; {todo}")
    return 0


def _active(settings: JobConfig) -> str:
    least = settings.settings.placement.least
    return f"{settings.active if least is None else f'{least} to {settings.active}'} active nodes"

"""`ft-supervisor validate`: is the file right?"""

from __future__ import annotations

import os

import typer

from ft_supervisor import config as configuration
from ft_supervisor.cli.errors import guarded
from ft_supervisor.cli.options import Command, Config


def validate(config: Config, command: Command = None) -> None:
    """Checks the job's file together with the cluster's policy: one line, and exit code 0, or 2 when it is wrong.

    \b
    Example:
      ft-supervisor validate --config job.yaml
    """
    raise typer.Exit(guarded(lambda: _run(config, command or [])))


def _run(path: Config, command: list[str]) -> int:
    settings = configuration.load(path, command=command, environ=os.environ)
    note = f"; {settings.policy_note}" if settings.policy_note else ""
    typer.echo(
        f"{path}: ok: job {settings.name}, {settings.active} active nodes, {settings.per_node} workers each{note}"
    )
    return 0

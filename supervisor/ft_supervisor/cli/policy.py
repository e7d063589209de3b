"""`ft-supervisor policy explain`: which value applies, and where is it set?"""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from ft_supervisor import config as configuration
from ft_supervisor.cli.errors import guarded, warn_of_variables
from ft_supervisor.config import explain as explaining
from ft_supervisor.config.explain import Row

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

KEY_WIDTH = 26
MAX_ORIGIN = 46
"""Columns: room for /etc/ft-supervisor/clusters/infiniband.yaml:100. A longer origin gets a line of its own."""


@app.callback()
def top() -> None:
    """Shows a job's settings and their origins.

    \b
    Example:
      ft-supervisor policy explain --config job.yaml
    """


@app.command("explain")
def explain(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY...]", help="Only these, or sections.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", parser=Path, help="The job's YAML file; without: the policy alone."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list of {key, value, origin}.")] = False,
) -> None:
    """Prints every key, its value, and where it is set.

    That is FILE:LINE, a variable, the command line, or built-in.

    A key without a value is shown as -. Values of workers.env are not shown.

    \b
    Examples:
      ft-supervisor policy explain --config job.yaml
      ft-supervisor policy explain --config job.yaml timeouts failures
      ft-supervisor policy explain --json          what applies here, for any job
    """
    raise typer.Exit(guarded(lambda: _run(keys or [], config, as_json)))


def _run(keys: list[str], path: Path | None, as_json: bool) -> int:
    warn_of_variables()
    if path is None:
        settings = configuration.load_policy(None, environ=os.environ)
    else:
        # The command may be given after -- only when the job is started.
        settings = configuration.load(path, environ=os.environ)
    rows = explaining.rows(settings, keys, job=path is not None)
    if as_json:
        typer.echo(json.dumps([{"key": row.key, "value": row.value, "origin": row.origin} for row in rows], indent=2))
        return 0
    width = max(80, shutil.get_terminal_size().columns)
    if settings.policy_note:
        typer.echo("\n".join(textwrap.wrap(f"# {settings.policy_note}", width, subsequent_indent="# ")))
    origin = max([len(row.origin) for row in rows if len(row.origin) <= MAX_ORIGIN], default=MAX_ORIGIN)
    for row in rows:
        typer.echo("\n".join(lines(row, width, max(20, origin))))
    return 0


def lines(row: Row, width: int, origin_width: int) -> list[str]:
    """Return a row in columns: key, value, origin. A long value is continued below, a long origin has its own line."""
    value_width = width - KEY_WIDTH - origin_width - 2
    first = (
        [row.shown]
        if len(row.shown) <= value_width
        else textwrap.wrap(row.shown, width - KEY_WIDTH - 1, break_on_hyphens=False)
    )
    found = [f"{row.key if at == 0 else '':{KEY_WIDTH}} {part}" for at, part in enumerate(first)]
    at = KEY_WIDTH + value_width + 2
    if len(found[-1]) < at and len(row.origin) <= width - at:
        found[-1] = f"{found[-1]:{at}}{row.origin}"
        return found
    return [*found, f"{'':{max(0, min(at, width - len(row.origin)))}}{row.origin}"]

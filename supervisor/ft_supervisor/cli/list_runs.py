"""`ft-supervisor list`: which runs are known here?"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.cli.output import put
from ft_supervisor.process.background import Background, Hangs

FILES_BOUND = 12.0
"""Seconds for the file systems of all runs together."""
MOST = 30
NOT_READ = 3


def list_runs(
    everything: Annotated[bool, typer.Option("--all", help=f"All of them, not the newest {MOST} alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lists the runs known here, the newest first.

    These are the jobs that you have submitted or run, on this cluster or by `ft-supervisor local`, and those below the
    current folder. Slurm is not asked; `report --since` asks its accounting.

    \b
    Examples:
      ft-supervisor list
      ft-supervisor list --json | jq -r '.runs[].job'

    \b
    Exit codes:
      0  listed
      2  the command line is wrong, or a folder cannot be read
      3  a file system does not answer
    """
    raise typer.Exit(guarded(lambda: _run(everything, as_json)))


def _run(everything: bool, as_json: bool) -> int:
    from ft_supervisor.run_folder.run_index import KEPT
    from ft_supervisor.status import known_runs, render_runs

    most = KEPT if everything else MOST
    try:
        found = Background("runs", lambda: known_runs.collect(os.environ, most)).result(FILES_BOUND)
    except Hangs:
        complain(f"a file system does not answer within {FILES_BOUND:g} s")
        os._exit(NOT_READ)  # a thread still waits for it
    except OSError as error:
        return complain(error)
    put(render_runs.as_json(found) if as_json else render_runs.as_text(found, _width()))
    return 0


def _width() -> int | None:
    """Return the columns of the terminal that stdout is, None for a pipe."""
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return None

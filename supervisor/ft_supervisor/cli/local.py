"""`ft-supervisor local`: the same job on one machine, without Slurm."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ft_supervisor import config as configuration
from ft_supervisor.cli.errors import guarded, warn_of_variables
from ft_supervisor.cli.options import Command, Config, daemon_line
from ft_supervisor.local import shell


def local(
    config: Config,
    nodes: Annotated[
        int, typer.Option("-N", "--nodes", min=1, max=1000, metavar="N", help="How many nodes to pretend.")
    ],
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="Show the workers' output and the nodes' states, but no info lines of our own."),
    ] = False,
    command: Command = None,
) -> None:
    """Runs the job on this machine, without Slurm.

    It starts one daemon for each pretended node, node0 and so on. Ctrl-C ends all of it.

    Those beyond the job's `nodes.active` are hot spares. To see one used, kill a daemon: their process ids are in
    RUN_DIR/RUN_ID/local.json.

    \b
    Examples:
      ft-supervisor local --config job.yaml -N 4
      ft-supervisor local --config job.yaml -N 4 -- python train.py --lr 0.1
    """
    raise typer.Exit(guarded(lambda: _run(config, nodes, quiet, command or [])))


def _run(path: Config, nodes: int, quiet: bool, command: list[str]) -> int:
    warn_of_variables()
    settings = configuration.load(path, command=command, environ=os.environ, allocation_nodes=nodes)
    return shell.run(daemon_line(path, command), settings, nodes, quiet, os.environ)

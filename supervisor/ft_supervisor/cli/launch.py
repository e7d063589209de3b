"""`ft-supervisor launch`: in a batch script."""

from __future__ import annotations

import os

import typer

from ft_slurm import allocation
from ft_slurm.errors import NotInAllocation
from ft_supervisor import config as configuration
from ft_supervisor.cli.errors import complain, guarded, warn_of_variables
from ft_supervisor.cli.options import Command, Config, daemon_line
from ft_supervisor.launch import shell


def launch(config: Config, command: Command = None) -> None:
    """Runs the job on all nodes of the allocation.

    It starts srun, and exits with the job's verdict.

    srun's own exit code does not tell how a job ended that has lost a node; this command's does. Make it the last
    line of the batch script.

    \b
    Examples:
      ft-supervisor launch --config job.yaml
      ft-supervisor launch --config job.yaml -- python train.py --lr 0.1
    """
    raise typer.Exit(guarded(lambda: _run(config, command or [])))


def _run(path: Config, command: list[str]) -> int:
    try:
        nodes = allocation.read(os.environ)
    except NotInAllocation as error:
        return complain(
            f"{error}; put this line into a batch script for sbatch, or run it under salloc; without Slurm: "
            f"`ft-supervisor local --config {path} -N 2`"
        )
    warn_of_variables()
    settings = configuration.load(path, command=command, environ=os.environ, allocation_nodes=nodes.node_count)
    return shell.Launch(daemon_line(path, command), settings, nodes, os.environ).run()

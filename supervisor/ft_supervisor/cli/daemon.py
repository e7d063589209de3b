"""`ft-supervisor --config job.yaml [-- CMD...]`: the daemon, one task per node, started by srun."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ft_slurm import environment
from ft_slurm.errors import NotInStep
from ft_supervisor import config
from ft_supervisor.cli.errors import complain, guarded

EPILOG = """\
This is the daemon: srun starts one on each node. To run a job, use one of

  ft-supervisor launch --config job.yaml                       in a batch script (or under salloc)
  srun --no-kill --kill-on-bad-exit=0 --wait=0 --ntasks-per-node=1 --mpi=none ft-supervisor --config job.yaml
  ft-supervisor local --config job.yaml -N 4                   without Slurm, on this machine

`ft-supervisor --help` lists all commands.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of all commands."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(complain(f"{message}; see `ft-supervisor --help`"))


def main(words: Sequence[str]) -> int:
    """Run the daemon and return its exit code."""
    parser = _Parser(
        prog="ft-supervisor", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the job's YAML file")
    parser.add_argument("command", nargs="*", metavar="-- CMD", help="run this instead of the file's workers.command")
    arguments = parser.parse_args(words)
    return guarded(lambda: _run(arguments.config, arguments.command))


def _run(path: Path, command: Sequence[str]) -> int:
    try:
        step = environment.read(os.environ)
    except NotInStep as error:
        return complain(
            f"{error}; this is the daemon that srun starts on each node: run `ft-supervisor launch --config {path}` "
            f"in a batch script, or `ft-supervisor local --config {path} -N 2` on this machine"
        )
    settings = config.load(path, command=command, environ=os.environ, allocation_nodes=len(step.nodes))
    from ft_supervisor.daemon import shell

    return shell.run(settings, os.environ)

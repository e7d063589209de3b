"""The command line of the srun that starts a daemon on every node."""

from __future__ import annotations

from collections.abc import Sequence


def srun(nodes: int, task: Sequence[str]) -> list[str]:
    """srun with one `task` on each of the allocation's nodes; Slurm 22.05 and later.

    Not --cpus-per-task: it implies --exact, and so would take away CPUs that the allocation has.
    """
    return [
        "srun",
        "--no-kill",  # sbatch's --no-kill does not reach srun
        "--kill-on-bad-exit=0",  # sites set KillOnBadExit and WaitTime
        "--wait=0",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--cpu-bind=none",  # the workers of a node share all of its CPUs
        "--export=ALL",  # sbatch --export=NONE would hide the nonce
        "--disable-status",  # one SIGINT to srun is passed on to the tasks at once
        *task,
    ]

"""Builds the command line of the srun that starts a daemon on every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PER_TASK = ("SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_GPUS_PER_TASK")


def srun(nodes: int, task: Sequence[str]) -> list[str]:
    """Return an srun command with one `task` on each of the allocation's nodes; Slurm 22.05 and later.

    Without --cpus-per-task: it implies --exact, and so would take away CPUs that the allocation has.
    """
    return [
        "srun",
        "--no-kill",  # sbatch's --no-kill does not reach srun
        "--kill-on-bad-exit=0",  # sites set KillOnBadExit and WaitTime
        "--wait=0",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        # Where MpiDefault is pmix or pmi2, Slurm itself kills the step when one of its PMI clients dies or a node is
        # out of reach (slurm_kill_job_step in src/plugins/mpi). No use for workers: all of a node would have one rank.
        "--mpi=none",
        "--cpu-bind=none",  # the workers of a node share all of its CPUs
        "--export=ALL",  # sbatch --export=NONE would hide the nonce
        "--disable-status",  # one SIGINT to srun is passed on to the tasks at once
        *task,
    ]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that give the batch script its own tasks: our one task per node has
    all of the node.

    Measured: with these, srun 24.11 gives the step one task's CPUs, however many the allocation has.
    """
    return {key: value for key, value in environ.items() if key not in PER_TASK}

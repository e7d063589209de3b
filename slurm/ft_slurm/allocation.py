"""Reads the allocation as a batch script sees it, before there is a step (sbatch(1), OUTPUT ENVIRONMENT VARIABLES)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ft_slurm import variables
from ft_slurm.errors import NotInAllocation

REQUIRED = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_SUBMIT_DIR")


@dataclass(frozen=True, slots=True)
class Allocation:
    """A job's allocation. `host` is the node that runs the batch script; None under salloc on a login node."""

    job_id: int
    restart_count: int
    nodes: tuple[str, ...]
    submit_dir: Path
    cluster: str | None
    host: str | None

    @property
    def node_count(self) -> int:
        return len(self.nodes)


def read(environ: Mapping[str, str]) -> Allocation:
    """Return the allocation that this process runs in.

    Ignores the variables of a step: sbatch passes on those of the step in which it was called. Raises NotInAllocation,
    BadVariable, NodeListError, Contradiction.
    """
    if gone := variables.missing(environ, REQUIRED):
        raise NotInAllocation(gone)
    return Allocation(
        job_id=variables.required_integer(environ, "SLURM_JOB_ID"),
        restart_count=variables.integer(environ, "SLURM_RESTART_COUNT") or 0,
        nodes=variables.nodes(environ, "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"),
        submit_dir=variables.directory(environ, "SLURM_SUBMIT_DIR"),
        cluster=environ.get("SLURM_CLUSTER_NAME") or None,
        host=environ.get("SLURMD_NODENAME") or None,
    )

"""Finds the name of this cluster. srun sets it for its tasks; on a login node slurmctld is asked."""

from __future__ import annotations

from collections.abc import Mapping

from ft_slurm.cli_client import CliClient
from ft_slurm.errors import NoCommands, SlurmError
from ft_supervisor.config import JobConfig

VARIABLE = "SLURM_CLUSTER_NAME"
BOUND = 10.0
"""Seconds for Slurm's answer."""


def environment(environ: Mapping[str, str], clusters: str | None = None) -> tuple[Mapping[str, str], str]:
    """Return the environment as the job's nodes will have it, for the configuration; and a line for people, "" for
    none.

    `clusters`: the value of sbatch's --clusters.
    """
    if clusters is not None and "," not in clusters and clusters != "all":
        return {**environ, VARIABLE: clusters}, ""
    if environ.get(VARIABLE):
        return environ, ""
    try:
        name = CliClient(environ).configuration(timeout=BOUND).get("ClusterName", "")
    except NoCommands:
        return environ, ""
    except SlurmError as error:
        return environ, f"the cluster's name, and so its policy, is not known: {error}"
    return ({**environ, VARIABLE: name} if name else environ), ""


def concerns(config: JobConfig, note: str) -> str:
    """Return the note where it matters: for a job that takes the policy of the cluster that it is on; "" for a job that
    names a cluster, or none."""
    return note if (config.policy_note or "").startswith("cluster: auto") else ""

"""Sets the variables that srun would put into the environment of each task of a step (srun(1), OUTPUT ENVIRONMENT
VARIABLES)."""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Mapping
from pathlib import Path

from ft_supervisor.daemon import files
from ft_supervisor.daemon.identity import LOCAL, NONCE

STEP_ID = 0
# A local run inside an allocation is a job of its own, and Slurm's variables would contradict it.
_FOREIGN = ("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_", LOCAL, NONCE)


def new_job_id() -> int:
    """Return the local time down to the millisecond as one number, readable in a folder's name, which no other run has.

    Two runs with one id would take each other's coordinators for their own. Raises OSError.
    """
    while True:
        now = time.time()
        job = int(time.strftime("%y%m%d%H%M%S", time.localtime(now)) + f"{int(now * 1000) % 1000:03}")
        if files.claim_run(run_id(job)):
            return job
        time.sleep(0.001)


def run_id(job: int) -> str:
    """Return the run id of the job's only step."""
    return f"{job}.{STEP_ID}.0"


def names(nodes: int) -> list[str]:
    """Return node0, node1 and so on."""
    return [f"node{index}" for index in range(nodes)]


def of_node(
    environ: Mapping[str, str], job: int, nodes: int, infra_rank: int, submit_dir: Path, nonce: str
) -> dict[str, str]:
    """Return the environment of this node's daemon. Each node has its own loopback address, from 127.0.0.1 up."""
    first = ipaddress.IPv4Address("127.0.0.1")
    addresses = ",".join(f"{name}:[{first + index}]:{name}" for index, name in enumerate(names(nodes)))
    node_list = f"node[0-{nodes - 1}]" if nodes > 1 else "node0"
    cpus = max(1, len(os.sched_getaffinity(0)) // nodes)
    return {
        **{key: value for key, value in environ.items() if not key.startswith(_FOREIGN)},
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NODELIST": node_list,
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_STEP_ID": str(STEP_ID),
        "SLURM_STEP_NODELIST": node_list,
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURM_STEP_NUM_TASKS": str(nodes),
        "SLURM_STEP_TASKS_PER_NODE": f"1(x{nodes})" if nodes > 1 else "1",
        "SLURM_NTASKS": str(nodes),
        "SLURM_NNODES": str(nodes),
        "SLURM_NODEID": str(infra_rank),
        "SLURM_PROCID": str(infra_rank),
        "SLURM_LOCALID": "0",
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_NODE_ALIASES": addresses,
        "SLURM_SUBMIT_DIR": str(submit_dir),
        "SLURMD_NODENAME": names(nodes)[infra_rank],
        LOCAL: "1",
        NONCE: nonce,
    }

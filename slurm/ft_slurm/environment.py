"""Reads a task's identity from the environment that srun gives it (srun(1), OUTPUT ENVIRONMENT VARIABLES).

These variables are fixed when the step starts: a node that is taken out of the job later stays in them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ft_slurm import variables
from ft_slurm.errors import BadVariable, Contradiction, NotInStep, SeveralTasksPerNode

REQUIRED = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_NODEID",
    "SLURMD_NODENAME",
    "SLURM_SUBMIT_DIR",
)
# Ids from here up are Slurm's own steps, not srun's: batch, extern, interactive (slurm.h, SLURM_MAX_NORMAL_STEP_ID).
FIRST_SPECIAL_STEP = 0xFFFFFFF0
_TASK_COUNT = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")


@dataclass(frozen=True, slots=True)
class StepEnvironment:
    """One task of one step. `nodes` is in Slurm's order, and infra_rank is `node_name`'s index in it."""

    job_id: int
    step_id: int
    restart_count: int
    node_name: str
    nodes: tuple[str, ...]
    infra_rank: int
    submit_dir: Path
    cluster: str | None
    reserved_ports: tuple[int, ...]
    topology_addr: str | None
    topology_pattern: str | None
    addresses: Mapping[str, str]  # from SLURM_NODE_ALIASES; empty unless node names do not resolve by themselves
    end_time: int | None  # seconds since 1970; a job without a limit has one a year away

    @property
    def run_id(self) -> str:
        return f"{self.job_id}.{self.step_id}.{self.restart_count}"


def read(environ: Mapping[str, str]) -> StepEnvironment:
    """Return the task's identity. Reads the mapping alone.

    Raises NotInStep when srun did not start this process, SeveralTasksPerNode, Contradiction (both values in the
    message), BadVariable and NodeListError.
    """
    if gone := variables.missing(environ, REQUIRED):
        raise NotInStep(gone)
    step_id = variables.required_integer(environ, "SLURM_STEP_ID")
    if step_id >= FIRST_SPECIAL_STEP:
        raise NotInStep((), f"not in a step of srun's: SLURM_STEP_ID={step_id} is the allocation's own shell")
    nodes = variables.nodes(environ, "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES")
    _check_one_task_per_node(environ, len(nodes))
    return StepEnvironment(
        job_id=variables.required_integer(environ, "SLURM_JOB_ID"),
        step_id=step_id,
        restart_count=variables.integer(environ, "SLURM_RESTART_COUNT") or 0,
        node_name=environ["SLURMD_NODENAME"],
        nodes=nodes,
        infra_rank=_infra_rank(environ, nodes),
        submit_dir=variables.directory(environ, "SLURM_SUBMIT_DIR"),
        cluster=environ.get("SLURM_CLUSTER_NAME") or None,
        reserved_ports=variables.ports(environ, "SLURM_STEP_RESV_PORTS"),
        topology_addr=environ.get("SLURM_TOPOLOGY_ADDR") or None,
        topology_pattern=environ.get("SLURM_TOPOLOGY_ADDR_PATTERN") or None,
        addresses=MappingProxyType(variables.aliases(environ, "SLURM_NODE_ALIASES")),
        end_time=variables.integer(environ, "SLURM_JOB_END_TIME"),
    )


def _infra_rank(environ: Mapping[str, str], nodes: tuple[str, ...]) -> int:
    name, expression = environ["SLURMD_NODENAME"], environ["SLURM_STEP_NODELIST"]
    node_id = variables.required_integer(environ, "SLURM_NODEID")
    if name not in nodes:
        raise Contradiction(
            f"SLURMD_NODENAME={name}", f"SLURM_STEP_NODELIST={expression}", "the node is not in its own step's list"
        )
    position = nodes.index(name)
    if position != node_id:
        raise Contradiction(
            f"SLURMD_NODENAME={name} is number {position} of SLURM_STEP_NODELIST={expression}",
            f"SLURM_NODEID={node_id}",
            "the number of this node is ambiguous",
        )
    return position


def _check_one_task_per_node(environ: Mapping[str, str], node_count: int) -> None:
    local_id = variables.integer(environ, "SLURM_LOCALID") or 0
    if local_id > 0:
        raise SeveralTasksPerNode(f"SLURM_LOCALID={local_id}")
    value = environ.get("SLURM_STEP_TASKS_PER_NODE")
    if value and any(tasks != 1 for tasks, _ in _task_counts(value)):
        raise SeveralTasksPerNode(f"SLURM_STEP_TASKS_PER_NODE={value}")
    if value and (counted := sum(repeat for _, repeat in _task_counts(value))) != node_count:
        raise Contradiction(
            f"SLURM_STEP_TASKS_PER_NODE={value} is for {counted} nodes",
            f"SLURM_STEP_NODELIST={environ['SLURM_STEP_NODELIST']} has {node_count}",
            "one of them was changed after Slurm set it",
        )
    # SLURM_NTASKS can be the batch script's; the step's own count goes first.
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        tasks = variables.integer(environ, name)
        if tasks is None:
            continue
        if tasks > node_count:
            raise SeveralTasksPerNode(f"{name}={tasks} on {node_count} nodes")
        return


def _task_counts(value: str) -> list[tuple[int, int]]:
    """Parse `2(x3),1` as [(2, 3), (1, 1)]: tasks on each node, and the number of consecutive nodes. Raises
    BadVariable."""
    counts: list[tuple[int, int]] = []
    for part in value.split(","):
        match = _TASK_COUNT.fullmatch(part)
        if not match:
            raise BadVariable("SLURM_STEP_TASKS_PER_NODE", value, "counts such as 1(x4) or 2(x3),1")
        counts.append((int(match[1]), int(match[2] or 1)))
    return counts

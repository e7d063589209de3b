"""Tests a step's and an allocation's identity on plain mappings; the real ones are in slurm_lab."""

from pathlib import Path

import pytest

from ft_slurm import allocation, environment
from ft_slurm.errors import (
    BadVariable,
    Contradiction,
    NodeListError,
    NotInAllocation,
    NotInStep,
    SeveralTasksPerNode,
    SlurmError,
)

# The environment of a task of `srun -N3` on node n2, in an allocation of n[0-3].
STEP = {
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_NODELIST": "n[0-3]",
    "SLURM_STEP_NODELIST": "n[0-2]",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    "SLURM_NTASKS": "3",
    "SLURM_NODEID": "2",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURMD_NODENAME": "n2",
    "SLURM_SUBMIT_DIR": "/home/u",
    "SLURM_CLUSTER_NAME": "lab",
}


def step(**changes: str) -> environment.StepEnvironment:
    return environment.read(STEP | changes)


def test_identity() -> None:
    me = step()
    assert (me.run_id, me.infra_rank, me.node_name, me.nodes) == ("42.0.0", 2, "n2", ("n0", "n1", "n2"))
    assert (me.submit_dir, me.cluster, me.end_time) == (Path("/home/u"), "lab", None)
    assert (me.reserved_ports, dict(me.addresses), me.topology_addr, me.topology_pattern) == ((), {}, None, None)


def test_what_is_not_always_there() -> None:
    me = step(
        SLURM_RESTART_COUNT="1",
        SLURM_STEP_RESV_PORTS="20000-20002,20010",
        SLURM_TOPOLOGY_ADDR="spine.s1.n2",
        SLURM_TOPOLOGY_ADDR_PATTERN="switch.switch.node",
        SLURM_NODE_ALIASES="n0:[fd00::1]:h0,n1:[10.0.0.2]:h1,n2:10.0.0.3:h2",
        SLURM_JOB_END_TIME="1800000000",
        SLURM_CLUSTER_NAME="",
    )
    assert me.run_id == "42.0.1"
    assert me.reserved_ports == (20000, 20001, 20002, 20010)
    assert (me.topology_addr, me.topology_pattern) == ("spine.s1.n2", "switch.switch.node")
    assert dict(me.addresses) == {"n0": "fd00::1", "n1": "10.0.0.2", "n2": "10.0.0.3"}
    assert me.end_time == 1_800_000_000
    assert me.cluster is None


def test_order_is_the_written_one() -> None:
    me = step(SLURM_STEP_NODELIST="b[1-2],a1", SLURMD_NODENAME="a1")
    assert (me.nodes, me.infra_rank) == (("b1", "b2", "a1"), 2)


def test_null_aliases_of_old_slurm() -> None:
    assert not step(SLURM_NODE_ALIASES="(null)").addresses


@pytest.mark.parametrize("name", environment.REQUIRED)
def test_each_required_variable_is_named_when_missing(name: str) -> None:
    with pytest.raises(NotInStep, match=name) as caught:
        step(**{name: ""})
    assert caught.value.missing == (name,)


def test_outside_slurm_all_of_them_are_named() -> None:
    with pytest.raises(NotInStep) as caught:
        environment.read({})
    assert caught.value.missing == environment.REQUIRED


def test_the_interactive_step_is_no_step_of_sruns() -> None:
    with pytest.raises(NotInStep, match="4294967290"):
        step(SLURM_STEP_ID="4294967290")


@pytest.mark.parametrize(
    ("changes", "error", "shown"),
    [
        ({"SLURM_NODEID": "1"}, Contradiction, ["SLURMD_NODENAME=n2", "number 2", "SLURM_NODEID=1"]),
        ({"SLURMD_NODENAME": "n9"}, Contradiction, ["SLURMD_NODENAME=n9", "SLURM_STEP_NODELIST=n[0-2]"]),
        ({"SLURM_STEP_NUM_NODES": "4"}, Contradiction, ["n[0-2] has 3", "SLURM_STEP_NUM_NODES=4"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x4)"}, Contradiction, ["1(x4) is for 4", "n[0-2] has 3"]),
        ({"SLURM_STEP_NODELIST": "n[0-2],n1"}, BadVariable, ["n[0-2],n1", "n1 is there more than once"]),
        ({"SLURM_STEP_NODELIST": "n[0-2"}, NodeListError, ["n[0-2", "position 1"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3)"}, SeveralTasksPerNode, ["2(x3)", "--ntasks-per-node=1"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x2),2"}, SeveralTasksPerNode, ["1(x2),2"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "one"}, BadVariable, ["one", "1(x4)"]),
        ({"SLURM_LOCALID": "1"}, SeveralTasksPerNode, ["SLURM_LOCALID=1"]),
        ({"SLURM_STEP_NUM_TASKS": "6"}, SeveralTasksPerNode, ["SLURM_STEP_NUM_TASKS=6 on 3 nodes"]),
        ({"SLURM_STEP_NUM_TASKS": "", "SLURM_NTASKS": "6"}, SeveralTasksPerNode, ["SLURM_NTASKS=6 on 3 nodes"]),
        ({"SLURM_NODEID": "two"}, BadVariable, ["SLURM_NODEID='two'", "a number"]),
        ({"SLURM_JOB_ID": "-1"}, BadVariable, ["SLURM_JOB_ID='-1'"]),
        ({"SLURM_SUBMIT_DIR": "here"}, BadVariable, ["SLURM_SUBMIT_DIR='here'", "absolute"]),
        ({"SLURM_STEP_RESV_PORTS": "70000"}, BadVariable, ["70000"]),
        ({"SLURM_STEP_RESV_PORTS": "20003-20000"}, BadVariable, ["20003-20000"]),
        ({"SLURM_NODE_ALIASES": "n0=10.0.0.1"}, BadVariable, ["'n0=10.0.0.1' is none"]),
    ],
)
def test_what_makes_no_sense_is_refused_and_shown(
    changes: dict[str, str], error: type[SlurmError], shown: list[str]
) -> None:
    with pytest.raises(error) as caught:
        step(**changes)
    assert [text for text in shown if text not in str(caught.value)] == []


def test_the_batch_scripts_task_count_does_not_count_within_a_step() -> None:
    assert step(SLURM_NTASKS="8").infra_rank == 2


BATCH = {
    "SLURM_JOB_ID": "42",
    "SLURM_JOB_NODELIST": "b[1-2],a[1-2]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_SUBMIT_DIR": "/home/u",
    "SLURMD_NODENAME": "b1",
}


def test_allocation() -> None:
    whole = allocation.read(BATCH | {"SLURM_RESTART_COUNT": "2", "SLURM_CLUSTER_NAME": "lab"})
    assert (whole.job_id, whole.restart_count, whole.node_count) == (42, 2, 4)
    assert whole.nodes == ("b1", "b2", "a1", "a2")
    assert (whole.submit_dir, whole.host, whole.cluster) == (Path("/home/u"), "b1", "lab")


def test_allocation_ignores_the_step_in_which_sbatch_was_called() -> None:
    stale = {"SLURM_STEP_ID": "3", "SLURM_STEP_NODELIST": "z9", "SLURM_NODEID": "7", "SLURM_LOCALID": "1"}
    assert allocation.read(BATCH | stale) == allocation.read(BATCH)


def test_a_batch_script_is_no_step_and_salloc_has_no_host() -> None:
    with pytest.raises(NotInStep, match="SLURM_STEP_NODELIST"):
        environment.read(BATCH | {"SLURM_NODEID": "0"})
    assert allocation.read({k: v for k, v in BATCH.items() if k != "SLURMD_NODENAME"}).host is None


def test_allocation_errors() -> None:
    with pytest.raises(NotInAllocation) as caught:
        allocation.read({})
    assert caught.value.missing == allocation.REQUIRED
    with pytest.raises(Contradiction, match="has 4 nodes, but SLURM_JOB_NUM_NODES=3"):
        allocation.read(BATCH | {"SLURM_JOB_NUM_NODES": "3"})

"""Agents and daemons that are killed or fall silent; the coordinator's end is in test_takeover.py."""

import os
import signal

import pytest
from tests.processes.harness import CALM, QUICK, StartJob


def test_a_killed_agent_is_replaced_and_its_workers_go_with_it(start: StartJob) -> None:
    job = start(nodes=2, active=2, worker=["family"])
    former = {int(job.worker(rank, kind=kind)["pid"]) for rank in (0, 1) for kind in ("worker", "child", "orphan")}
    os.kill(job.pid("agent", "node1"), signal.SIGKILL)
    assert job.wait("agent_lost", "node1")["status"] == "killed by SIGKILL"
    assert job.wait("restart", used=1)["reason"] == "the agent of node1: killed by SIGKILL"
    for rank in (0, 1):
        assert job.worker(rank, restart=1).said == f"node{rank}"
        assert not former & set(job.processes()), job.output
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")
    assert len(job.all("agent_lost")) == 1 and not job.all("node_lost")


def test_a_spare_takes_the_place_of_a_killed_agent_at_once(start: StartJob) -> None:
    """CALM: the silence of a node is noticed after 40 s, and the next agent takes seconds to be there."""
    job = start(nodes=3, active=2, worker=["family"])
    former = {int(job.worker(1, kind=kind)["pid"]) for kind in ("worker", "child", "orphan")}
    job.worker(0)
    os.kill(job.pid("agent", "node1"), signal.SIGKILL)
    assert job.wait("restart", used=1)["reason"] == "the agent of node1: killed by SIGKILL"
    assert not job.all("registered", infra_rank=1, incarnation=2)
    assert not former & set(job.processes("node1")), job.output
    assert job.worker(1, restart=1).said == "node2"
    job.wait("registered", infra_rank=1, incarnation=2)
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")
    assert not job.all("node_lost") and not job.all("suspect")


@pytest.mark.slow("test_daemon_process.py::test_a_silent_agent_is_replaced_with_its_memory_and_all_below_it_gone")
def test_a_silent_agent_is_replaced_by_its_daemon(start: StartJob) -> None:
    job = start(nodes=2, active=2, timeouts=CALM | {"agent": "3s"})
    worker = int(job.worker(1)["pid"])
    agent = job.pid("agent", "node1")
    os.kill(agent, signal.SIGSTOP)
    job.wait("agent_silent", "node1", incarnation=1)
    job.wait("agent_lost", "node1")
    job.wait("registered", infra_rank=1, incarnation=2)
    assert not {agent, worker} & set(job.processes("node1"))
    job.worker(1, restart=1)
    job.finish()
    job.assert_end(0, "success")
    assert not job.all("node_lost")


def test_a_standby_takes_the_place_of_a_killed_node(start: StartJob) -> None:
    job = start(nodes=3, active=2, worker=["family"], timeouts=QUICK)
    survivor = int(job.worker(0)["pid"])
    job.worker(1, kind="orphan")
    job.worker(1)
    job.kill_nodes("node1")
    lost = job.wait("node_lost", node="node1")
    promoted = job.wait("promoted", node="node2")
    assert (promoted["instead_of"], promoted["group_rank"]) == ("node1", "1")
    assert job.worker(1, restart=1).said == "node2"
    assert job.worker(0, restart=1).said == "node0"  # survivors keep their rank
    assert survivor not in job.processes()
    assert job.worker(1, restart=1).at - lost.at < 20
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0", dead=["node1"])


@pytest.mark.slow("test_takeover.py::test_the_coordinators_node_dies_as_a_standby_and_training_goes_on")
def test_a_killed_standby_disturbs_nobody(start: StartJob) -> None:
    job = start(nodes=2, active=1, timeouts=QUICK)
    job.worker(0)
    job.kill_nodes("node1")
    job.wait("node_lost", node="node1")
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.0 exited with 0", dead=["node1"])
    assert len(job.all("worker")) == 1 and not job.all("restart")


def test_without_a_standby_too_few_nodes_are_left(start: StartJob) -> None:
    job = start(nodes=2, active=2, timeouts=QUICK)
    for rank in (0, 1):
        job.worker(rank)
    job.kill_nodes("node1")
    job.assert_end(
        75, "interrupted", "too few nodes: 1 of 2 nodes are left; node1 was not heard for 9 s", dead=["node1"]
    )

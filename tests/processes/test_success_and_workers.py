"""Success, and workers that crash, are deaf, or leave processes of their own."""

import os
import signal

import pytest
from tests.processes.harness import StartJob


def test_success_with_a_standby(start: StartJob) -> None:
    job = start(nodes=3, active=2)
    assert [job.worker(rank)["world"] for rank in (0, 1)] == ["2", "2"]
    job.wait("standby", "node2")
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.0 exited with 0")
    assert len(job.all("worker")) == 2 and not job.all("worker", "node2")
    # A late tick is the machine's load.
    wrong = [line for line in job.lines if line.level in ("warning", "error") and line.event != "tick_late"]
    assert not wrong, job.output


def test_a_worker_that_fails_or_is_killed_means_a_new_cycle_on_the_same_nodes(start: StartJob) -> None:
    job = start(nodes=2, active=2)
    job.worker(0)
    job.fail(job.worker(1))
    assert job.wait("restart", used=1)["reason"].startswith("rank 1 (node1, local 0) exited with 1")
    job.worker(1, restart=1)
    os.kill(int(job.worker(0, restart=1)["pid"]), signal.SIGKILL)
    assert job.wait("restart", used=2)["reason"] == "rank 0 (node0, local 0) was killed by SIGKILL"
    for rank, node in enumerate(job.nodes):
        assert job.worker(rank, restart=2).said == node
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.2 exited with 0")
    assert len(job.all("worker")) == 6
    assert not job.all("node_lost") and not job.all("agent_lost")


def test_nothing_of_the_former_cycle_is_left_when_the_next_one_begins(start: StartJob) -> None:
    """Workers that ignore SIGTERM, with children in sessions of their own and orphans."""
    job = start(nodes=2, active=2, worker=["deaf", "family"])
    former = {int(job.worker(rank, kind=kind)["pid"]) for rank in (0, 1) for kind in ("worker", "child", "orphan")}
    assert former <= set(job.processes())
    job.fail(job.worker(1))
    job.wait("deaf", "node0", rank=0)
    for rank in (0, 1):
        job.worker(rank, restart=1)
        # Not even on the other node, and not even those that were about to die.
        assert not former & set(job.processes()), job.output
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")


@pytest.mark.slow("core/test_coordinator.py::test_the_spent_budget_is_the_verdict")
def test_a_spent_budget_ends_all_nodes_with_1(start: StartJob) -> None:
    job = start(nodes=3, active=2, max_restarts=1)
    job.fail(job.worker(0))
    job.fail(job.worker(1, restart=1))
    job.assert_end(1, "failed", "1 restart spent: rank 1 (node1, local 0) exited with 1")
    assert len(job.all("restart")) == 1
    assert not job.all("worker", restart=2)

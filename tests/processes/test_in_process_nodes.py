"""Restarts in the same processes where workers, agents or whole nodes stand still, are cut off, leave and come back.

A worker notes when it has run in a cycle: none does anything for a cycle once the next one has begun.
"""

import os
import signal

import pytest
from tests.processes.harness import QUICK, Job, StartJob, until
from tests.processes.in_process import WORKER, pids, settings, succeed, tell
from tests.processes.test_frozen import LOST, ran

BUSY = "with worker.atomic():\n say('busy')\n while not Path('go').exists(): act(memory['began']); time.sleep(DEED)"
"""What keeps a worker from leaving its function until the file `go` is there."""


def assert_one_after_another(job: Job, ranks: int, restart: int) -> None:
    """No worker of the cycle before this one has done anything after the first of this one."""
    begun = min(ran(job, restart, rank)[0] for rank in range(ranks))
    assert max(ran(job, restart - 1, rank)[1] for rank in range(ranks)) < begun, job.output


def stands_by(job: Job, node: str, times: int) -> None:
    """Wait until this node has begun to stand by so many times: before its first cycle, and whenever its workers have
    stopped."""
    until(lambda: len(job.all("standby", node)) == times, f"{node} as a standby")


# -- workers and agents that stand still


def test_a_rank_that_stands_still_and_goes_on_in_time_keeps_its_process(start: StartJob) -> None:
    job = start(nodes=2, active=2, **settings(per_node=1, quiesce="60s"))
    first = pids(job, range(2))
    os.kill(first[1], signal.SIGSTOP)
    tell(job, 0, "raise ValueError")
    job.wait("stopping", "node1")
    job.thaw([first[1]])
    assert pids(job, range(2), 1) == first
    assert_one_after_another(job, 2, 1)
    succeed(job, 1)


@pytest.mark.slow("test_in_process.py::test_one_that_does_not_leave_its_function_in_time_is_killed")
def test_a_rank_that_stands_still_for_good_is_replaced(start: StartJob) -> None:
    keys = settings(per_node=1)
    keys["job"]["hang"] = {"after": "5s"}
    job = start(nodes=2, active=2, **keys)
    first = pids(job, range(2))
    os.kill(first[1], signal.SIGSTOP)
    assert "hangs" in job.wait("restart")["reason"]
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] != first[1]
    assert first[1] not in job.processes()
    assert_one_after_another(job, 2, 1)
    succeed(job, 1)


def test_a_worker_is_parked_although_its_agent_stands_still_meanwhile(start: StartJob) -> None:
    job = start(nodes=2, active=2, **settings(per_node=1, quiesce="60s"))
    first = pids(job, range(2))
    tell(job, 1, "Path('left').touch()", when="finalize")
    tell(job, 1, BUSY)
    job.wait("busy")
    tell(job, 0, "raise ValueError")
    job.wait("stopping", "node1")
    agent = job.pid("agent", "node1")
    os.kill(agent, signal.SIGSTOP)
    (job.folder / "go").touch()
    until((job.folder / "left").exists, "the function's end")
    assert not job.all("worker", restart=1)
    job.thaw([agent])
    assert pids(job, range(2), 1) == first
    assert_one_after_another(job, 2, 1)
    succeed(job, 1)
    assert not job.all("agent_lost") and not job.all("not_parked")


@pytest.mark.slow("test_frozen.py, and the theme `parking` of tests/simulation")
@pytest.mark.parametrize("still", [["agent"], ["daemon", "agent"]])
def test_workers_that_quiesce_below_a_frozen_agent_are_gone_before_they_are_replaced(
    start: StartJob, still: list[str]
) -> None:
    job = start(nodes=3, active=2, **settings(per_node=1, timeouts=LOST, quiesce="120s"))
    first = pids(job, range(2))
    tell(job, 1, BUSY)
    job.wait("busy")
    tell(job, 0, "raise ValueError")
    job.wait("stopping", "node1")
    stopped = [job.pid(child, "node1") for child in still]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and first[1] not in job.processes()
    assert_one_after_another(job, 2, 1)
    job.thaw(stopped)
    succeed(job, 1)
    assert not job.all("worker_failed", "node1")


# -- nodes that are cut off


@pytest.mark.slow("test_in_process_ends.py::test_a_fence_kills_workers_that_could_be_parked")
def test_a_node_that_is_cut_off_while_its_workers_quiesce_kills_them(start: StartJob) -> None:
    """Its fence comes long before they would have to be parked."""
    timeouts = QUICK | {"node_lost": "60s"}  # node0 comes back before it could take node1 for lost
    job = start(nodes=2, active=2, candidates=[0], **settings(per_node=1, timeouts=timeouts, quiesce="120s"))
    first = pids(job, range(2))
    tell(job, 1, BUSY)
    job.wait("busy")
    tell(job, 0, "raise ValueError")
    job.wait("stopping", "node1")
    stands_by(job, "node0", 2)
    stopped = job.freeze("node0")
    job.wait("fenced", "node1")
    until(lambda: first[1] not in job.processes("node1"), "the fence")
    assert not job.all("worker", restart=1)
    job.thaw(stopped)
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] != first[1]
    assert_one_after_another(job, 2, 1)
    job.finish()
    job.assert_end(0, "success")


@pytest.mark.slow("the theme `parking` of tests/simulation, which cuts nodes off")
def test_a_node_that_is_cut_off_while_its_worker_is_parked_keeps_it(start: StartJob) -> None:
    """It comes back as a spare, and takes part again in the same process."""
    job = start(nodes=3, active=2, **settings(per_node=1, timeouts=QUICK, quiesce="120s"))
    first = pids(job, range(2))
    tell(job, 0, BUSY)
    job.wait("busy")
    tell(job, 1, "raise ValueError")
    stands_by(job, "node1", 2)
    stopped = [job.pid("daemon", "node1"), job.pid("agent", "node1")]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    job.wait("node_lost", node="node1")
    (job.folder / "go").touch()
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and job.worker(1, 1).said == "node2"
    job.thaw(stopped)
    stands_by(job, "node1", 3)
    job.kill_nodes("node2")
    assert pids(job, range(2), 2) == first
    assert job.wait("workers_made", "node1", cycle="0.2")["in_process"] == "1"
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.2 exited with 0", dead=["node2"])


# -- sizes


@pytest.mark.slow("core/test_sizes_and_slurm.py::test_an_elastic_job_shrinks_and_grows_back_at_the_next_failure")
def test_a_job_shrinks_and_grows_in_the_same_processes(start: StartJob) -> None:
    keys = settings(per_node=1, timeouts=QUICK)
    keys["job"]["nodes"] = {"active": {"min": 3, "max": 4}}
    keys["policy"]["spares"] = {"on_exhausted": "shrink"}
    job = start(nodes=4, active=4, **keys)
    first = pids(job, range(4))
    stopped = job.freeze("node1")
    fewer = pids(job, range(3), 1)
    assert fewer == [first[0], first[2], first[3]]
    assert [job.worker(rank, 1)["world"] for rank in range(3)] == ["3"] * 3
    job.thaw(stopped)
    job.wait("spare_ready", "node1")
    waiting = {pid for pid, command in job.processes("node1").items() if WORKER in command}
    tell(job, 0, "raise ValueError")
    again = pids(job, range(4), 2)
    assert [job.worker(rank, 2)["world"] for rank in range(4)] == ["4"] * 4
    assert again[0] == first[0] and set(again) == {*fewer, *waiting}, job.output
    succeed(job, 2)

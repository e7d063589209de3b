"""Ends of jobs that restart in the same processes: by return, a signal, a lost agent, the fence; and output."""

import os
import signal
import sys

import pytest
from tests.processes.harness import QUICK, StartJob, until
from tests.processes.in_process import WORKER, pids, settings, succeed, tell

# -- the end of the function


def test_all_are_called_again_also_those_that_have_returned(start: StartJob) -> None:
    job = start(nodes=2, active=2, **settings(per_node=1))
    first = pids(job, range(2))
    others = "while not Path('finish').exists(): time.sleep(0.01)\ntime.sleep(0.5)\nPath('finish').unlink()"
    tell(job, 1, f"say('waits')\n{others}\nraise ValueError")
    job.wait("waits")
    tell(job, 0, "Path('finish').touch()")
    assert pids(job, range(2), 1) == first
    assert not job.all("returned")
    succeed(job, 1)
    assert [line["restart"] for line in job.all("returned")] == ["1", "1"]


# -- output


def test_output_is_in_the_file_of_its_cycle(start: StartJob) -> None:
    job = start(nodes=1, active=1, **settings(per_node=1))
    pids(job, range(1))
    tell(job, 0, "os.write(1, b'x' * 1_000_000 + b'no end'); raise ValueError")
    pids(job, range(1), 1)
    tell(job, 0, "os.write(2, b'second cycle\\n')")
    succeed(job, 1)
    logs = job.run_folder / "logs"
    first, second = ((logs / cycle / "rank0.log").read_text() for cycle in ("0.0", "0.1"))
    assert "x" * 1_000_000 + "no end" in first and "ValueError" in first and "restart=0" in first
    assert "second cycle" not in first and "restart=1" not in first
    assert "x" not in second.replace("exit", "") and "restart=1" in second and second.endswith("\n")


def test_output_through_a_tee(start: StartJob) -> None:
    command = ["bash", "-c", f"exec 3>&1; {sys.executable} -S {WORKER} | tee copy.txt"]
    keys = settings(per_node=1)
    keys["job"]["workers"]["command"] = command
    job = start(nodes=1, active=1, **keys)
    first = pids(job, range(1))
    tell(job, 0, "raise ValueError")
    assert pids(job, range(1), 1) == first
    succeed(job, 1)
    assert "restart=1" in (job.run_folder / "logs" / "0.1" / "rank0.log").read_text()


# -- ends of all kinds


def test_a_killed_agent_takes_its_parked_workers_along(start: StartJob) -> None:
    job = start(nodes=2, active=2, **settings(per_node=1))
    first = pids(job, range(2))
    os.kill(job.pid("agent", "node1"), signal.SIGKILL)
    second = pids(job, range(2), 1)
    assert second[0] == first[0] and second[1] != first[1]
    assert first[1] not in job.processes()
    succeed(job, 1)


def test_parked_workers_end_at_once_with_the_job(start: StartJob) -> None:
    job = start(nodes=2, active=2, **settings(per_node=1, max_restarts=0))
    pids(job, range(2))
    tell(job, 0, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); say('deaf')")
    job.wait("deaf")
    tell(job, 1, "raise ValueError")
    job.assert_end(1, "failed", "rank 1 (node1, local 0): ValueError")
    last = max(line.at for line in job.all("closing"))
    assert max(line.at for line in job.all("leaving", proc="daemon")) - last < 10


def test_a_fence_kills_workers_that_could_be_parked(start: StartJob) -> None:
    job = start(nodes=3, active=2, candidates=[0], **settings(per_node=1, timeouts=QUICK))
    former = pids(job, range(2))
    stopped = job.freeze("node0")
    until(lambda: former[1] not in job.processes("node1"), "the fence")
    assert job.all("fenced", "node1")
    assert not job.all("worker", restart=1)
    job.thaw(stopped)


def test_a_job_that_is_cancelled_while_some_are_parked(start: StartJob) -> None:
    job = start(nodes=2, active=2, **settings(per_node=1, quiesce="60s"))
    pids(job, range(2))
    tell(job, 0, "with worker.atomic():\n say('open'); time.sleep(1000)")
    job.wait("open")
    tell(job, 1, "raise ValueError")
    job.wait("stopping", "node0")
    job.wait("standby", "node1")
    job.local.send_signal(signal.SIGINT)
    job.assert_end(130, "cancelled", "Ctrl-C (SIGINT on node")
    told = min(line.at for line in job.all("closing"))
    assert max(line.at for line in job.all("leaving", proc="daemon")) - told < 20  # far less than quiesce


@pytest.mark.slow("tests/simulation/themes.py, where coordinators die while workers are parked")
def test_a_coordinator_that_dies_while_workers_are_parked(start: StartJob) -> None:
    timeouts = {"coordinator": "2s", "fence": "15s", "node_lost": "25s", "agent": "20s"}
    job = start(nodes=3, active=3, candidates=3, **settings(per_node=1, timeouts=timeouts, quiesce="10s"))
    first = pids(job, range(3))
    for node in job.nodes:
        job.wait("coordinator_listens", node)
    tell(job, 1, "with worker.atomic():\n say('open'); time.sleep(4)")
    job.wait("open")
    tell(job, 2, "raise ValueError")
    job.wait("cycle_failed")
    os.kill(job.pid("coordinator", "node0"), signal.SIGKILL)
    job.wait("in_charge", term=1)
    until(lambda: len(job.all("worker")) >= 6, "the next cycle")
    assert sorted(int(line["pid"]) for line in job.all("worker")[3:]) == sorted(first)
    job.finish()
    job.assert_end(0, "success", "exited with 0")
    assert len(job.all("worker")) == 6

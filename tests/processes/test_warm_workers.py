"""`workers.preload` in whole jobs: restarts go on in processes that were there before the failure."""

import os
import signal
import sys
from pathlib import Path

from tests.processes.harness import QUICK, Job, StartJob, until

WORKER = str(Path(__file__).with_name("worker.py"))
PRELOAD = {"workers": {"per_node": 2, "command": [sys.executable, "-I", "-S", WORKER, "beats"], "preload": ["json"]}}


def waiting(job: Job, node: str, count: int) -> None:
    """Wait until so many warm workers of the node have been ready."""
    until(lambda: len(job.all("warm_worker_ready", node)) >= count, f"{count} warm workers on {node}")


def test_a_killed_rank_goes_on_in_a_warm_process(start: StartJob) -> None:
    job = start(nodes=2, active=2, job=PRELOAD)
    for rank in range(4):
        job.worker(rank)
    for node in job.nodes:
        waiting(job, node, 4)
    before = set(job.processes())
    os.kill(int(job.worker(3)["pid"]), signal.SIGKILL)
    for rank in range(4):
        worker = job.worker(rank, restart=1)
        assert int(worker["pid"]) in before and worker["pid"] != job.worker(rank)["pid"]
    for node in job.nodes:
        assert job.all("workers_started", node, cycle="0.1", warm=2, cold=0)
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")
    assert not job.all("warm_worker_lost") and not job.all("preload_failed")


def test_a_promoted_spare_was_ready(start: StartJob) -> None:
    job = start(nodes=3, active=2, job=PRELOAD, timeouts=QUICK)
    job.wait("standby", "node2")
    waiting(job, "node2", 2)
    before = set(job.processes("node2"))
    job.worker(3)
    job.kill_nodes("node1")  # warm workers too, or this would wait for them for ever
    for rank in (2, 3):
        assert int(job.worker(rank, restart=1)["pid"]) in before
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0", dead=["node1"])

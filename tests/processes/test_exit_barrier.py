"""The exit barrier's key is a hint: set from outside it ends no spare, and a coordinator that dies there keeps none."""

import json
import os
import signal
from datetime import timedelta

import pytest
from tests.processes.harness import Job, StartJob, until
from tests.processes.test_takeover import LOADED, in_place
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.store.keys import Keys


def stranger(job: Job) -> TCPStore:
    """A client that knows nothing but what `squeue` and a port scan tell."""
    address = json.loads((job.run_folder / "addr" / "0").read_text())
    bound = timedelta(seconds=30)
    return TCPStore(address["host"], address["port"], is_master=False, wait_for_workers=False, timeout=bound)


def test_its_key_set_by_a_stranger_in_mid_job_changes_nothing(start: StartJob) -> None:
    job = start(nodes=3, active=2, candidates=3)
    workers = in_place(job, 2)
    stranger(job).set(Keys(job.run_folder.name).barrier_done(Cycle(0, 0)), "<Val_ignored>")
    # The spare asks the coordinator, which sends it nowhere.
    until(
        lambda: len(job.all("registered", node="node2")) > 1 or job.all("leaving", "node2"),
        "that the spare does something about it",
    )
    assert not job.all("leaving"), job.output
    assert {int(line["pid"]) for line in workers} <= set(job.processes()), job.output
    job.fail(workers[1])  # and the spare is still good for something
    for rank in (0, 1):
        job.worker(rank, restart=1)
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")
    assert len(job.all("in_charge")) == 1 and not job.all("node_lost")


@pytest.mark.parametrize("nodes", [3, pytest.param(5, marks=pytest.mark.slow("the job of 3 nodes"))])
def test_spares_leave_at_once_though_the_coordinator_is_killed_at_it(start: StartJob, nodes: int) -> None:
    """It has not even heard that the workers have succeeded."""
    job = start(nodes=nodes, active=2, candidates=3)
    in_place(job, 2)
    coordinator = job.pid("coordinator", "node0")
    os.kill(coordinator, signal.SIGSTOP)
    job.finish()
    for node in ("node0", "node1"):
        job.wait("succeeded", node)
    os.kill(coordinator, signal.SIGKILL)
    killed = job.wait("coordinator_lost", "node0")
    job.assert_end(0, "success", "all workers of cycle 0.0 exited with 0")
    left = [line.at - killed.at for line in job.all("leaving", proc="daemon") if line.said != "node0"]
    assert len(left) == nodes - 1 and max(left) < LOADED
    assert len(job.all("worker")) == 2 and not job.all("restart")

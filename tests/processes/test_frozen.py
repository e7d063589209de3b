"""Nodes that stand still for longer than node_lost, in part or as a whole, and then go on."""

import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.processes.harness import BOUND, QUICK, Job, StartJob, until

LOST = QUICK | {"node_lost": "11s"}
"""The guard has two seconds more than it is promised, as tests run on machines that do other things too."""
EXAMPLE = Path(__file__).resolve().parents[2] / "configs" / "examples" / "ddp" / "train.py"
WAKING = 5.0
"""Seconds that the workers of a whole node may run on after it went on; some 10 milliseconds as a rule."""


def ran(job: Job, restart: int, rank: int) -> tuple[float, float]:
    """When this rank of the cycle after so many restarts ran first and last, by CLOCK_MONOTONIC."""
    first, last = struct.unpack("2d", (job.folder / f"ran-{restart}-{rank}").read_bytes())
    return first, last


def end(pidfd: int) -> float:
    """When this process ended, by CLOCK_MONOTONIC."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(BOUND * 1000), "it does not end"
    os.close(pidfd)
    return time.monotonic()


@pytest.mark.parametrize(
    "family",
    [
        pytest.param([], id="alone", marks=pytest.mark.slow("the same with a family")),
        pytest.param(["family"], id="family"),
    ],
)
def test_workers_whose_agent_and_daemon_stand_still_are_gone_before_they_are_replaced(
    start: StartJob, family: list[str]
) -> None:
    job = start(nodes=3, active=2, worker=["records", *family], timeouts=LOST)
    former = [int(job.worker(1, kind=kind)["pid"]) for kind in ("worker", *(["child", "orphan"] if family else []))]
    job.worker(0)
    still = [job.pid("daemon", "node1"), job.pid("agent", "node1")]
    for pid in still:
        os.kill(pid, signal.SIGSTOP)
    assert job.worker(1, restart=1).said == "node2"
    assert not set(former) & set(job.processes()), job.output
    job.worker(0, restart=1)
    for rank in (0, 1):
        assert ran(job, 0, rank)[1] < min(ran(job, 1, 0)[0], ran(job, 1, 1)[0]), job.output
    job.thaw(still)
    job.wait("standby", "node1")
    job.finish()
    job.assert_end(0, "success", "all workers of cycle")
    assert not job.all("worker_failed", "node1")


@pytest.mark.slow("test_ddp_example.py::test_an_incarnation_that_stood_still_overwrites_nothing")
def test_a_whole_node_that_goes_on_overwrites_no_checkpoint(start: StartJob) -> None:
    """Its rank 0 trains alone, so it can go on and save at once, beside the one that has replaced it."""
    command = [sys.executable, str(EXAMPLE), "--steps", "1000000", "--checkpoint-every", "1", "--step-time", "0.01"]
    job = start(
        nodes=3,
        active=1,
        timeouts=QUICK,
        candidates=2,
        job={"workers": {"per_node": 1, "command": command, "env": {"CHECKPOINT_DIR": "checkpoints"}}},
    )
    folder = job.folder / "checkpoints"

    def saved() -> list[Path]:
        return list(folder.glob("checkpoint-*.pt"))

    (old,) = until(saved, "the first checkpoint")
    (worker,) = [pid for pid, line in job.processes("node0").items() if f" {EXAMPLE} " in line]
    pidfd = os.pidfd_open(worker)
    pids = job.freeze("node0")
    (new,) = until(lambda: [path for path in saved() if path != old], "a checkpoint of the next cycle")
    until(lambda: not old.exists(), "the end of the former cycle's checkpoint")
    size, inode = new.stat().st_size, new.stat().st_ino
    # What its rank 0 had begun is completed now; the workers go on first, as is worst.
    waking = time.monotonic()
    job.thaw([worker, *pids])
    assert end(pidfd) - waking < WAKING, job.output
    until(lambda: new.stat().st_ino != inode, "another checkpoint of the new cycle")
    assert new.stat().st_size == size
    job.local.send_signal(signal.SIGINT)
    assert job.local.wait(BOUND) == 130, job.output
    assert resumed(job) == sorted(resumed(job)), "no cycle began with an older checkpoint than one before it"


def resumed(job: Job) -> list[int]:
    """The steps that the cycles began with, in the order in which they came."""
    return [int(text.split('"resumed_from": ')[1].split(",")[0]) for text in job.texts if '"resumed_from": ' in text]


def test_no_time_is_compared_with_that_of_another_clock(start: StartJob) -> None:
    """CLOCK_BOOTTIME is weeks ahead of CLOCK_MONOTONIC, as after weeks of suspend."""
    shifted = ["unshare", "--time", "--boottime", "2000000", "--fork", "--"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*shifted, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no time namespaces here")
    job = start(nodes=1, active=1, before=shifted)
    job.fail(job.worker(0))
    job.worker(0, restart=1)
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1")
    for event in ("fenced", "node_lost", "agent_silent", "disconnected"):
        assert not job.all(event), job.output

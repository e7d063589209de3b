"""What a job of `local` leaves behind when `local` itself is killed, and what its workers inherit: nothing of ours."""

import signal

import pytest
from tests.processes.harness import CALM, StartJob, until


@pytest.mark.parametrize(
    "frozen",
    [
        pytest.param(False, id="running", marks=pytest.mark.slow("the same with a frozen node")),
        pytest.param(True, id="frozen"),
    ],
)
def test_nothing_is_left_when_it_is_killed(start: StartJob, frozen: bool) -> None:
    """Also of what the workers have detached, and of a node that stands still just then."""
    job = start(nodes=3, active=2, worker=["family", "deaf"], timeouts=CALM)
    for rank in (0, 1):
        job.worker(rank)
    job.wait("orphan", "node1")
    if frozen:
        job.freeze("node1")
    job.local.send_signal(signal.SIGKILL)
    until(lambda: not job.processes(), "the end of all of it")


@pytest.mark.slow("test_local_shell.py::test_every_signal_that_would_end_it_ends_the_job_in_its_own_way")
def test_sigquit_is_a_way_to_end_it_all(start: StartJob) -> None:
    job = start(nodes=2, active=1, worker=["family"], timeouts=CALM)
    job.worker(0)
    job.local.send_signal(signal.SIGQUIT)
    job.assert_end(130, "cancelled", "was told to end: SIGTERM")


def test_workers_inherit_no_signal_of_ours(start: StartJob) -> None:
    """Neither blocked ones nor ignored ones, though daemons and agents begin with most of them blocked."""
    show = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
    job = start(nodes=1, active=1, job={"workers": {"per_node": 1, "command": show}})
    assert job.end() == {"node0": 0}
    shown = dict(text.split()[-2:] for text in job.texts if "Sig" in text and "event=" not in text)
    internal = 1 << 31 | 1 << 32  # 32 and 33 are the C library's own, and posix_spawn has them ignored
    assert {name: int(value, 16) & ~internal for name, value in shown.items()} == {"SigBlk:": 0, "SigIgn:": 0}

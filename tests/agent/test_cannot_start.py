"""A node that cannot start workers, for want of a writable folder or of file descriptors, reports that it is the node's
fault. Workers that were started all the same are ended, and nothing of them is left open."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.harness import Agent, Driven, Nursery, Scripted, job, living_below, run, standby
from tests.agent.test_workers_reports import Start, exited, python

from ft_supervisor.agent.failures import look_up
from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.events import CannotStart, WorkersExited, WorkersGone
from ft_supervisor.core.protocol.messages import Register, Unhealthy, WorkersStopped
from ft_supervisor.core.protocol.model import Cycle, Job, Problem

FIRST, SECOND, THIRD = Cycle(0, 1), Cycle(0, 2), Cycle(0, 3)
SLEEPS = python("time.sleep(1000)")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of its own as the node's folder."""
    place = tmp_path / "local"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=20", "ft-test", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


def fill(place: Path) -> None:
    """Fill the folder until no file or folder can be made there any more."""
    try:
        for number in range(100):
            (place / f"filler{number}").touch()
    except OSError as error:
        assert error.errno == errno.ENOSPC
    else:
        pytest.fail(f"{place} is not full")


def cannot(workers: Driven, cycle: Cycle) -> str:
    """Return the reason that the node reports; its workers are stopped, and nothing of them is left."""
    event = workers.event(CannotStart)
    assert event.cycle == cycle
    workers.call("stop", cycle, 0.0, "SIGTERM", "now")
    assert workers.event(WorkersGone).cycle == cycle
    assert living_below(workers.pid) == []
    return event.reason


@as_root
def test_a_folder_that_turns_read_only_is_the_nodes_fault(driven: Start, mounted: Path) -> None:
    workers = driven(job(mounted, command=SLEEPS, per_node=2, run_folder=str(mounted)))
    workers.call("start", run(FIRST))
    assert set(workers.call("pids")) == {0, 1}
    workers.call("stop", FIRST, 0.0, "SIGTERM", "now")
    workers.event(WorkersGone)
    subprocess.run(["mount", "-o", "bind", str(mounted), str(mounted)], check=True)  # a log is still open for writing
    subprocess.run(["mount", "-o", "remount,bind,ro", str(mounted)], check=True)
    try:
        before = workers.call("open_fds")
        workers.call("start", run(SECOND))
        assert cannot(workers, SECOND).startswith("[Errno 30] Read-only file system: ")
        assert workers.call("open_fds") == before
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
    workers.call("start", run(THIRD))  # nothing of it stays
    assert set(workers.call("pids")) == {0, 1}


@as_root
def test_a_full_folder_is_the_nodes_fault(driven: Start, mounted: Path) -> None:
    workers = driven(job(mounted, command=SLEEPS))
    workers.call("pids")
    fill(mounted)
    workers.call("start", run(FIRST))
    assert cannot(workers, FIRST).startswith("[Errno 28] No space left on device: ")


def test_however_few_descriptors_are_left_it_is_the_nodes_fault_and_nothing_stays(
    driven: Start, tmp_path: Path
) -> None:
    """Each limit ends the start at another point; some leave workers behind that already run."""
    workers = driven(job(tmp_path, command=SLEEPS, per_node=3))
    workers.call("start", run(Cycle(0, 0)))
    workers.call("stop", Cycle(0, 0), 0.0, "SIGTERM", "now")
    workers.event(WorkersGone)
    before = workers.call("open_fds")
    limits = resource.prlimit(workers.pid, resource.RLIMIT_NOFILE)
    refused = []
    for more in range(3, 40):
        cycle = Cycle(0, more)
        resource.prlimit(workers.pid, resource.RLIMIT_NOFILE, (max(map(int, before)) + more, limits[1]))
        workers.call("start", run(cycle))
        if set(workers.call("pids")) == {0, 1, 2}:
            workers.call("stop", cycle, 0.0, "SIGTERM", "now")
            workers.event(WorkersGone)
            break
        assert "Too many open files" in cannot(workers, cycle)
        assert workers.call("open_fds") == before
        refused.append(more)
    assert len(refused) > 5
    assert living_below(workers.pid) == []


def test_a_command_that_is_too_long_is_not_the_nodes_fault(driven: Start, tmp_path: Path) -> None:
    workers = driven(job(tmp_path, command=[*SLEEPS, "x" * 2**18]))
    workers.call("start", run(FIRST))
    failure = exited(workers)
    assert (failure.local_rank, failure.exit_code) == (0, 126) and "Argument list too long" in failure.message
    assert workers.event(WorkersExited) == WorkersExited(FIRST, ())


def test_a_command_that_cannot_be_looked_for_is_the_nodes_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object, **_: object) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    assert look_up("/no/such/folder/train") == (127, "/no/such/folder/train: command not found")
    assert look_up(f"{sys.executable}/train") == (127, f"{sys.executable}/train: command not found")
    monkeypatch.setattr(os, "stat", broken)
    with pytest.raises(OSError, match="Stale file handle"):
        look_up("/no/such/folder/train")


def test_an_agent_says_it_once_and_for_all(
    nursery: Nursery, agent_of: Callable[..., Agent], coordinator: Scripted, tmp_path: Path
) -> None:
    """So does an agent that never had a folder for its workers: it can be a spare, and reports it when it is needed."""
    (tmp_path / "workers").touch()
    the_job: Job = job(tmp_path, coordinator.port, command=SLEEPS)
    agent = agent_of(the_job)
    coordinator.expect(Register)
    coordinator.mail(standby())
    coordinator.mail(run(FIRST, restart_count=1))
    problem = coordinator.expect(Unhealthy).problem
    assert problem.check == "workers"
    assert problem.reason == f"cannot start workers: log_dir: {tmp_path / 'workers'} is a file"
    assert coordinator.expect(WorkersStopped).cycle == FIRST
    kept = agent.expect(orders.Remember, lambda order: order.memory.unhealthy is not None)
    assert kept.memory.unhealthy == Problem("workers", problem.reason)
    coordinator.mail(run(SECOND, restart_count=2))
    assert coordinator.expect(Unhealthy).problem == problem
    assert coordinator.expect(WorkersStopped).cycle == SECOND
    assert agent.log().count("event=unhealthy") == 1 and "event=worker_failed" not in agent.log()

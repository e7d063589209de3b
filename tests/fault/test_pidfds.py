"""Signals that can hit nobody else, and everything below a process that stands still at once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from ft_supervisor.fault.pidfds import Pidfds, stopped
from ft_supervisor.process import tree

BOUND = 60.0
FORKS = """\
import os, signal, time
if os.fork() == 0:
    while True:  # a family that never stands still
        if (pid := os.fork()) == 0:
            time.sleep(0.01)
            os._exit(0)
        time.sleep(0.001)
        os.waitpid(pid, 0)
print("up", flush=True)
signal.pause()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """start(code): a Python that runs it, once it has said `up`; in a group that is killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(code: str = "import signal; print('up', flush=True); signal.pause()") -> subprocess.Popen[str]:
        line = [sys.executable, "-I", "-S", "-c", code]
        started.append(subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True))
        assert started[-1].stdout is not None and started[-1].stdout.readline() == "up\n"
        return started[-1]

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(BOUND)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def pidfds() -> Iterator[Pidfds]:
    pidfds = Pidfds()
    yield pidfds
    pidfds.close()
    assert pidfds.pids == ()


def began(pid: int) -> int:
    process = tree.stat(pid)
    assert process is not None
    return process.start


def test_a_pid_that_was_used_again_is_not_taken(start: Start, pidfds: Pidfds) -> None:
    process = start()
    assert not pidfds.take(process.pid, began(process.pid) - 1)
    assert pidfds.send(signal.SIGKILL) == ()
    assert process.poll() is None
    assert pidfds.take(process.pid, began(process.pid))
    assert pidfds.send(signal.SIGKILL) == (process.pid,)
    assert pidfds.wait_gone(BOUND) == ()
    assert process.wait(BOUND) == -signal.SIGKILL


def test_what_is_gone_is_not_hit_and_a_zombie_is_not_taken(start: Start, pidfds: Pidfds) -> None:
    process, other = start(), start()
    assert pidfds.take(process.pid)
    process.kill()
    assert pidfds.wait_gone(BOUND) == ()
    assert not Pidfds().take(process.pid)  # a zombie, nobody has waited for it yet
    process.wait(BOUND)
    assert pidfds.send(signal.SIGKILL) == ()
    assert other.poll() is None


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is root's")
def test_somebody_elses_process_is_not_taken_by_its_owner_alone(pidfds: Pidfds) -> None:
    assert not pidfds.take(1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start somebody else's")
def test_somebody_elses_process_is_not_taken(pidfds: Pidfds) -> None:
    with subprocess.Popen(["sleep", "600"], user=65534, cwd="/") as process:
        assert not pidfds.take(process.pid)
        process.kill()


def test_everything_below_stands_still(start: Start, pidfds: Pidfds) -> None:
    root = start(FORKS)
    assert pidfds.take(root.pid)
    pidfds.stop_below(root.pid)
    below = {root.pid, *(pid for pid, (state, _) in tree.descendants(root.pid).items() if state != "Z")}
    assert len(below) >= 2 and below <= set(pidfds.pids)
    assert set(stopped(below)) == below
    pidfds.send(signal.SIGCONT)
    end = time.monotonic() + BOUND
    while stopped(below):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert root.poll() is None

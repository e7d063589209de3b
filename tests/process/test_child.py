"""A child whose daemon dies, or that has none."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

ENTER = "from ft_supervisor.process.child import enter_child; link = enter_child()"

DAEMON = """
import os, subprocess, sys
from ft_supervisor.process.link import LINK_FD_ENV, pair
ours, theirs = pair()
os.environ[LINK_FD_ENV] = str(theirs.fileno())
subprocess.Popen(sys.argv[1:], pass_fds=[theirs.fileno()])
sys.stdin.read()
"""


@pytest.mark.usefixtures("python_path")
def test_a_child_dies_with_its_daemon_even_when_it_hangs(gone: Callable[[int], bool]) -> None:
    code = f"import os, time; {ENTER}; print(os.getpid(), flush=True); time.sleep(600)"
    line = [sys.executable, "-c", DAEMON, sys.executable, "-c", code]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        try:
            assert daemon.stdout is not None
            child = int(daemon.stdout.readline())
            assert not gone(child, 0)  # type: ignore[call-arg]
        finally:
            daemon.send_signal(signal.SIGKILL)
    assert gone(child)


@pytest.mark.usefixtures("python_path")
def test_a_child_whose_parent_is_not_the_daemon_any_more_does_not_begin() -> None:
    line = [sys.executable, "-c", DAEMON, "sh", "-c", f"{sys.executable} -c '{ENTER}'; :"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as daemon:
        _, said = daemon.communicate(timeout=60)
    assert "LinkClosed: the daemon died before its child began" in said


@pytest.mark.usefixtures("python_path")
def test_started_by_hand_it_says_so() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "FT_SUPERVISOR_LINK"}
    done = subprocess.run([sys.executable, "-c", ENTER], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "is started by ft-supervisor, not by hand" in done.stderr

"""Processes to watch, kill and sweep: a nursery, which is their subreaper, and all that it starts."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.process.living import ended

from ft_supervisor.process import tree

NURSERY = """
import subprocess, sys
from ft_supervisor.process.tree import become_subreaper
become_subreaper()
children = [subprocess.Popen(["sh", "-c", script]) for script in sys.argv[1:]]
sys.stdin.read()
"""


class Nursery:
    """A subreaper and its descendants. Each script of sh prints the pids that the test needs, one per line."""

    def __init__(self, process: subprocess.Popen[str], count: int) -> None:
        self._process = process
        self.pid = process.pid
        assert process.stdout is not None
        self.pids = [int(process.stdout.readline()) for _ in range(count)]


@pytest.fixture
def python_path(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `python -c` import the package before it is installed."""
    monkeypatch.setenv("PYTHONPATH", str(repository / "supervisor"))


@pytest.fixture
def nursery(python_path: None) -> Iterator[Callable[..., Nursery]]:
    """`nursery(script, ..., count=n)`: start the scripts below a subreaper and read the n pids that they print."""
    with ExitStack() as ends:

        def start(*scripts: str, count: int) -> Nursery:
            process = subprocess.Popen(
                [sys.executable, "-c", NURSERY, *scripts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            ends.callback(_end, process)
            return Nursery(process, count)

        yield start


def _end(process: subprocess.Popen[str]) -> None:
    tree.sweep(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """`gone(pid)`: wait for the end of any process; False if it goes on."""
    return ended

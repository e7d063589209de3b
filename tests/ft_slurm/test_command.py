"""Tests `command`, which runs Slurm's commands within a bound: they hang, flood, leave a child, or do not start."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ft_slurm import command


@pytest.fixture
def wrapper(tmp_path: Path) -> Iterator[Path]:
    """Write a script that starts a command which does not end, and prints its process id."""
    path = tmp_path / "wrapper"
    path.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/pid\nwait\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    yield path
    started = Path("/proc", (tmp_path / "pid").read_text().strip(), "exe")
    end = time.monotonic() + 60
    while started.exists():  # it was sent SIGKILL, and needs a moment to die
        assert time.monotonic() < end, "it was left running"
        time.sleep(0.01)


def test_command_that_hangs_is_killed_with_what_it_started(wrapper: Path) -> None:
    began = time.monotonic()
    with pytest.raises(command.Unanswered, match="not answered within 2 s"):
        command.run([str(wrapper)], 2.0, os.environ)
    assert time.monotonic() - began < 60


def test_command_that_says_a_little_for_ever() -> None:
    began = time.monotonic()
    with pytest.raises(command.Unanswered, match="not answered within 1 s"):
        command.run(["sh", "-c", "while :; do echo x; sleep 0.02; done"], 1.0, os.environ)
    assert time.monotonic() - began < 30


def test_command_whose_child_keeps_its_output_open() -> None:
    with pytest.raises(command.Unanswered, match=r"not answered within 1 s$"):
        command.run(["sh", "-c", "sleep 1000 & echo x"], 1.0, os.environ)


def test_command_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(command.Unanswered, match="cannot be started: No such file"):
        command.run([str(tmp_path / "nothing")], 2.0, os.environ)

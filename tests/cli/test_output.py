"""Commands, and their exit codes, where their output cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.run_folder import verdict_file

FULL = "No space left on device"
BOUND = 60.0


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return the runs of a job that has succeeded."""
    verdict_file.write(tmp_path / "12.0.0", Verdict(Outcome.SUCCESS, "all done"), "12.0.0", "nonce")
    return tmp_path


def shell(folder: Path, words: str) -> tuple[int, str]:
    """Return the exit code of the command in a shell, and what both of them print on stderr."""
    python = f"{sys.executable} -P -m ft_supervisor"
    done = subprocess.run(
        ["bash", "-c", words.replace("ft-supervisor", python)],
        cwd=folder,
        env={"PYTHONPATH": os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part), "PATH": "/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=BOUND,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("ft-supervisor verdict 12 --run-dir . > /dev/full", 0, 1),
        ("ft-supervisor verdict 12 --run-dir . > /dev/full 2>&1", 0, 0),
        ("ft-supervisor verdict 12 --run-dir . | true; exit ${PIPESTATUS[0]}", 0, 0),
        ("ft-supervisor verdict 12 --run-dir . >&-", 0, 0),
        ("ft-supervisor verdict x --run-dir . 2> /dev/full", 2, 0),
        ("ft-supervisor verdict x --run-dir . 2>&-", 2, 0),
        ("ft-supervisor status 12 --run-dir . > /dev/full", 2, 1),
        ("ft-supervisor status 12 --run-dir . >&-", 0, 0),
        ("ft-supervisor report 12 --run-dir . > /dev/full", 2, 1),
        ("ft-supervisor report 12 --run-dir . >&-", 4, 0),
        ("ft-supervisor schema > /dev/full", 2, 1),
        ("ft-supervisor --help > /dev/full", 2, 1),
    ],
)
def test_the_exit_code_is_right_and_there_is_one_line_at_most(runs: Path, words: str, code: int, told: int) -> None:
    found, error = shell(runs, words)
    assert (found, len(error.splitlines()), error.count(FULL)) == (code, told, told), error

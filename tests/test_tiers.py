"""What the default run leaves to --all, and what scripts/test says of itself."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = "tests/bench/test_bench_command.py"


def collected(repository: Path, *options: str) -> str:
    """The ids of the tests of the bench's command that these options of pytest choose."""
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", BENCH, *options]
    done = subprocess.run(line, cwd=repository, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_slow_test_runs_only_with_all(repository: Path) -> None:
    assert "[faults-6]" in (without := collected(repository)) and "[takeover-16]" not in without
    assert "[faults-6]" in (everything := collected(repository, "--all")) and "[takeover-16]" in everything


@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("no-such-stage", 2)])
def test_the_script_explains_itself(repository: Path, option: str, code: int) -> None:
    line = [str(repository / "scripts" / "test"), option]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    said = done.stderr if code else done.stdout
    assert done.returncode == code
    assert "./scripts/test core" in said and "./scripts/test --all" in said and "unit -- -k" in said

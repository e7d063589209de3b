"""The bench from outside: a small run of real processes, and nothing left of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

BOUND = 120.0


def start(repository: Path, temporary: Path, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(repository / name) for name in ("supervisor", "slurm", "scripts"))
    return subprocess.Popen(
        [sys.executable, "-m", "ft_bench.cli", *arguments],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(folder: Path) -> list[psutil.Process]:
    """Those whose command line names something in `folder`."""
    return [process for process in psutil.process_iter(["cmdline"]) if str(folder) in str(process.info["cmdline"])]


@pytest.mark.parametrize(
    ("section", "count"),
    [
        ("faults", 6),
        pytest.param("restart", 24, marks=pytest.mark.slow("faults, test_warm_workers.py, test_in_process.py")),
        pytest.param("hang", 3, marks=pytest.mark.slow("faults, and tests/processes/test_hangs.py")),
        pytest.param("takeover", 16, marks=pytest.mark.slow("faults, and tests/processes")),
    ],
)
def test_a_small_run(repository: Path, tmp_path: Path, section: str, count: int) -> None:
    figures, temporary = tmp_path / "bench.json", tmp_path / "tmp"
    temporary.mkdir()
    process = start(repository, temporary, "--quick", "--only", section, "--json", str(figures))
    out, err = process.communicate(timeout=BOUND * 5)
    assert process.returncode == 0, err
    rows = json.loads(figures.read_text())["rows"]
    assert len(rows) == count
    for row in rows:
        assert row["samples"], row
        assert row["what"].split(",")[0] in out
    assert not list(temporary.iterdir())
    assert not processes_of(temporary)


def test_an_interrupted_run_leaves_nothing(repository: Path, tmp_path: Path) -> None:
    process = start(repository, tmp_path, "--quick", "--only", "faults")
    until = time.monotonic() + BOUND
    while len(processes_of(tmp_path)) < 2:  # `local` and a daemon
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=BOUND)
    assert process.returncode == 130, err
    assert not list(tmp_path.iterdir())
    assert not processes_of(tmp_path)


def test_help_has_examples(repository: Path, tmp_path: Path) -> None:
    process = start(repository, tmp_path, "--help")
    out, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 0
    assert "scripts/bench --quick" in out

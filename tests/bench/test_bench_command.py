"""The bench from outside: a small run of real processes, and nothing left of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil


def bench(repository: Path, temporary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ft_bench.cli", *arguments],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": ":".join(python_path(repository))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


def python_path(repository: Path) -> list[str]:
    return [str(repository / name) for name in ("supervisor", "slurm", "scripts")]


def test_a_small_run(repository: Path, tmp_path: Path) -> None:
    figures, temporary = tmp_path / "bench.json", tmp_path / "tmp"
    temporary.mkdir()
    arguments = ["--quick", "--only", "faults", "--json", str(figures)]
    done = bench(repository, temporary, *arguments)
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    assert len(rows) == 4
    for row in rows:
        assert row["samples"], row
        assert row["what"].split(",")[0].split()[0] in done.stdout
    assert not list(temporary.iterdir())
    left = [process for process in psutil.process_iter(["cmdline"]) if str(temporary) in str(process.info["cmdline"])]
    assert not left


def test_help_has_examples(repository: Path, tmp_path: Path) -> None:
    done = bench(repository, tmp_path, "--help")
    assert done.returncode == 0
    assert "scripts/bench --quick" in done.stdout

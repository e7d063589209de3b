"""`ft-supervisor list`: the runs of the user's index and of the current folder."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.conftest import Command
from tests.cli.runs import a_run, end
from tests.status.test_status import put, shot

from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.run_folder import run_index, verdict_file
from ft_supervisor.run_folder.run_index import IndexEntry
from ft_supervisor.status import known_runs, render_runs
from ft_supervisor.status.known_runs import KnownRun

pytestmark = pytest.mark.usefixtures("no_slurm")
LOCAL = 261122060719247


def listed(command: Command, tmp_path: Path, *words: str) -> list[dict[str, object]]:
    done = command("list", "--json", *words, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 0, done
    runs: list[dict[str, object]] = json.loads(done.stdout)["runs"]
    return runs


def note(tmp_path: Path, cluster: str, job: int, folder: Path, age: float, task: str = "") -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    run_index.note(environ, cluster, IndexEntry(job, folder), task)
    for name in filter(None, (str(job), task)):
        os.utime(tmp_path / "state/ft-supervisor/runs" / cluster / name, (time.time() - age,) * 2)


def test_runs_of_the_index_and_of_this_folder(command: Command, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    a_run(elsewhere / "125", "125.0.0")
    newest = a_run(elsewhere / "125", "125.0.1", age=100)
    put(newest, replace(shot(), run_id="125.0.1", job="train"))
    end(newest, Verdict(Outcome.FAILED, "rank 2 (n3, local 0): " + "x" * 80))
    a_run(elsewhere / "7", f"{LOCAL}.0.0")
    note(tmp_path, "big", 125, elsewhere / "125", 300, "123_4")
    note(tmp_path, run_index.LOCAL, LOCAL, elsewhere / "7", 200)
    note(tmp_path, "big", 130, elsewhere / "130", 3600)
    a_run(tmp_path / "ft-runs/9", "9.0.0", age=1800)
    found = listed(command, tmp_path)
    assert sorted((run["job"], run["state"], run["local"]) for run in found) == [
        ("123_4", "failed", False),
        ("130", "not begun", False),
        (str(LOCAL), "running", True),
        ("9", "stale", False),
    ]
    assert [run["job"] for run in found][2:] == ["9", "130"]  # the newest first
    failed = next(run for run in found if run["job"] == "123_4")
    assert failed["summary"] == ("rank 2 (n3, local 0): " + "x" * 80)[:59] + "…"
    assert (failed["name"], failed["active"], failed["nodes"]) == ("train", 3, 4), failed


def test_the_verdict_s_line_is_shown_without_its_outcome(command: Command, tmp_path: Path) -> None:
    folder = a_run(tmp_path / "ft-runs/9", "9.0.1")
    verdict_file.write(folder, Verdict(Outcome.SUCCESS, "x"), "9.0.1", "n", "success (restart 1), 3 cycles, 42 s lost")
    assert [(run["state"], run["summary"]) for run in listed(command, tmp_path)] == [("success", "3 cycles, 42 s lost")]


def test_the_newest_alone(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ft_supervisor.cli.list_runs.MOST", 2)
    for job in range(5):
        note(tmp_path, "c", 100 + job, tmp_path / "none", 50 - job, f"1_{job}")
    assert [run["job"] for run in listed(command, tmp_path)] == ["1_4", "1_3"]
    assert len(listed(command, tmp_path, "--all")) == 5


def test_nothing(command: Command, tmp_path: Path) -> None:
    done = command("list", XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 0 and "no runs are known here" in done.stdout


@pytest.mark.parametrize("width", [40, 80, 200])
def test_each_line_fits(width: int) -> None:
    runs = [KnownRun("123_4", False, "n\x1b[31m" * 20, "interrupted", 1e9, 3, 5, "s" * 300)]
    text = render_runs.as_text(runs, width)
    assert max(map(cell_len, text.splitlines())) <= width and "\x1b" not in text


def test_a_damaged_run_is_unknown(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "ft-runs/9/9.0.0"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text("{")
    assert [run["state"] for run in listed(command, tmp_path)] == ["unknown"]
    assert known_runs.NOT_BEGUN not in {run["state"] for run in listed(command, tmp_path)}

"""Tests writing and reading the user's index of runs."""

import os
from pathlib import Path

import pytest

from ft_supervisor.run_folder import run_index
from ft_supervisor.run_folder.run_index import IndexEntry, look, note, task_name


def test_what_was_noted_is_found(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    note(environ, "big", IndexEntry(125, Path("/runs/a")), "123_4")
    note(environ, None, IndexEntry(7, Path("/runs/b c")))
    assert look(environ, "125") == look(environ, "123_4") == [IndexEntry(125, Path("/runs/a"))]
    assert look(environ, "7") == [IndexEntry(7, Path("/runs/b c"))]
    assert look(environ, "123") == look(environ, "123_5") == []
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == [f"ft-supervisor/runs/{name}" for name in ("big/123_4", "big/125", "slurm/7")]


def test_below_home_without_the_variable(tmp_path: Path) -> None:
    note({"HOME": str(tmp_path), "XDG_STATE_HOME": "relative"}, "c", IndexEntry(1, Path("/runs")))
    assert (tmp_path / ".local/state/ft-supervisor/runs/c/1").is_file()
    assert look({"HOME": str(tmp_path)}, "1") == [IndexEntry(1, Path("/runs"))]


def test_an_entry_that_is_removed_meanwhile_is_left_out(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    note(environ, "c", IndexEntry(7, Path("/runs")))
    (tmp_path / "ft-supervisor/runs/c/8").symlink_to("removed")
    assert [each.entry.job_id for each in run_index.newest(environ, 9)] == [7]


def test_no_home_is_no_index(tmp_path: Path) -> None:
    note({}, "c", IndexEntry(1, Path("/runs")))
    assert look({}, "1") == []


def test_of_two_clusters_the_newer_entry_comes_first(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for number, cluster in enumerate(("new", "old")):
        note(environ, cluster, IndexEntry(9, Path(f"/{cluster}")))
        os.utime(tmp_path / "ft-supervisor/runs" / cluster / "9", (0, 1000 - number))
    assert [entry.run_dir for entry in look(environ, "9")] == [Path("/new"), Path("/old")]


@pytest.mark.parametrize("cluster", ["../../up", "a/b", ".", "..", "", "x" * 41, "new\nline"])
def test_a_cluster_s_name_is_no_path(tmp_path: Path, cluster: str) -> None:
    note({"XDG_STATE_HOME": str(tmp_path)}, cluster, IndexEntry(9, Path("/runs")))
    assert [path.name for path in (tmp_path / "ft-supervisor/runs").iterdir()] == ["slurm"]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", '{"job_id": 9}', '{"job_id": "9", "run_dir": "/r"}', '{"job_id": 9, "run_dir": "r"}',
        '{"job_id": true, "run_dir": "/r"}', '{"job_id": -1, "run_dir": "/r"}', '{"job_id": 9, "run_dir": "/r\\u0000"}',
        '{"job_id": 1' + "0" * 400 + ', "run_dir": "/r"}', "[" * 30_000, "\xff", " " * 70_000,
    ],
)  # fmt: skip
def test_what_is_no_entry_is_none(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "ft-supervisor/runs/c"
    folder.mkdir(parents=True)
    (folder / "9").write_text(text, encoding="latin-1")
    assert look({"XDG_STATE_HOME": str(tmp_path)}, "9") == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "ft-supervisor/runs/c"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "9")
    assert look({"XDG_STATE_HOME": str(tmp_path)}, "9") == []


def test_it_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "KEPT", 3)
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for job in (8, 100, 9, 11, 10):
        note(environ, "c", IndexEntry(job, Path("/runs")))
    assert sorted(path.name for path in (tmp_path / "ft-supervisor/runs/c").iterdir()) == ["10", "100", "11"]


def test_the_name_of_an_array_task() -> None:
    assert task_name({"SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "4"}) == "123_4"
    assert task_name({"SLURM_ARRAY_JOB_ID": "123"}) == task_name({}) == task_name({"SLURM_ARRAY_TASK_ID": "x"}) == ""

"""Tests the file of a job that still runs in Slurm: it is whole or missing, and no command is ever taken from it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ft_supervisor.run_folder import left_running
from ft_supervisor.run_folder.left_running import NAME, BadFile, LeftRunning, by_slurm, read, remove, write

LEFT = LeftRunning(7, "there is no libslurmfull.so here", 1000.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "7.0.0"


@pytest.mark.parametrize("until", [None, 1060.0])
def test_what_was_written_is_read(folder: Path, until: float | None) -> None:
    left = LeftRunning(7, "it waits", 1000.0, until)
    write(folder, left)
    assert read(folder) == left
    assert [path.name for path in folder.iterdir()] == [NAME]
    write(folder, LEFT)
    assert read(folder) == LEFT
    remove(folder)
    assert read(folder) is None
    remove(folder)


def test_a_person_finds_the_command_in_the_file(folder: Path) -> None:
    write(folder, LEFT)
    assert json.loads((folder / NAME).read_text())["ends_it"] == "scancel 7"


def test_the_command_is_not_taken_from_the_file(folder: Path) -> None:
    """Other users may be able to write to the file."""
    write(folder, LEFT)
    content = json.loads((folder / NAME).read_text()) | {"ends_it": "rm -rf /", "why": "bad\nluck"}
    (folder / NAME).write_text(json.dumps(content))
    left = read(folder)
    assert left is not None
    assert left.sentence(0.0) == "the job still runs in Slurm: bad luck; it ends by `scancel 7`"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "[]" * 9,
        "[" * 100_000,
        "null",
        "{}",
        '{"job": 8, "why": "", "time": 1, "until": null}',
        '{"job": 7, "why": 1, "time": 1, "until": null}',
        '{"job": 7, "why": "", "time": "x", "until": null}',
        '{"job": 7, "why": "", "time": NaN, "until": null}',
        '{"job": 7, "why": "", "time": true, "until": null}',
        f'{{"job": 7, "why": "", "time": 1, "until": {"9" * 400}}}',
        '{"job": 7, "why": "", "time": 1, "until": -1}',
        " " * (left_running.MAX_BYTES + 1),
    ],
)
def test_anything_else_is_one_line(folder: Path, content: str) -> None:
    folder.mkdir()
    (folder / NAME).write_text(content)
    with pytest.raises(BadFile) as caught:
        read(folder)
    assert len(str(caught.value).splitlines()) == 1


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / NAME)
    with pytest.raises(BadFile, match="no regular file"):
        read(folder)


def test_the_sentence_tells_whether_somebody_waits() -> None:
    waits = LeftRunning(7, "n0 is MIXED", 1000.0, 1060.0)
    assert "it ends there within 50 s, or by `scancel 7`" in waits.sentence(1010.0)
    assert "it ends by `scancel 7`" in waits.sentence(1061.0)


def test_a_usual_end_takes_a_while() -> None:
    assert by_slurm(7, "RUNNING", 1000.0, 1119.0) is None
    left = by_slurm(7, "RUNNING", 1000.0, 1121.0)
    assert left is not None and "RUNNING 121 s after its verdict" in left.sentence(1121.0)

"""The journal of `launch`: it replays, and nothing that is wrong with its disk delays `launch`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ft_supervisor.core.launch.interface import (
    BrokenFile,
    CommentWritten,
    HostAnswered,
    LaunchBegin,
    LaunchEvent,
    OthersVerdict,
    RequeueForbidden,
    SrunEnded,
    SrunStarted,
    VerdictRead,
)
from ft_supervisor.core.launch.launch import LaunchMachine
from ft_supervisor.core.protocol.events import Signalled, Tick
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.journal.replay import replay, story
from ft_supervisor.journal.tagged import KINDS, load
from ft_supervisor.launch.journal import Recorder

BOUND = 60.0
BEGIN = LaunchBegin(7, 4, 3, "n1", True, 3.0, tuple((outcome, 30.0) for outcome in Outcome), 5.0)
FAILED = Verdict(Outcome.FAILED, "no luck")
LIFE: tuple[LaunchEvent, ...] = (
    SrunStarted(),
    OthersVerdict(Verdict(Outcome.SUCCESS, "of another launch"), "7.2.0"),
    BrokenFile("/r/verdict.json: not JSON"),
    Signalled("SIGTERM"),
    Tick(),
    VerdictRead(FAILED, "7.3.0"),
    SrunEnded(1),
    CommentWritten(),
    RequeueForbidden(),
    HostAnswered(gone=False),
)


class Problems:
    """The problems of a Recorder."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __call__(self, problem: str) -> None:
        self.problems.append(problem)


def record(recorder: Recorder, now: float = 100.1) -> None:
    """Record a whole life of the machine."""
    machine = LaunchMachine(BEGIN)
    recorder.record(now, None, machine.start(now))
    for event in LIFE:
        now = max(now + 0.0123456789, machine.next_tick if isinstance(event, Tick) else 0.0)
        recorder.record(now, event, machine.handle(event, now))
    assert machine.state == "left"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the journal, whose parents exist."""
    return tmp_path / "ft" / "launch" / "7.0.1"


def test_it_replays_and_is_copied_to_the_run(tmp_path: Path, folder: Path) -> None:
    told = Problems()
    recorder = Recorder(folder, BEGIN, 100.1, told)
    record(recorder)
    recorder.publish(tmp_path / "runs" / "7.3.0", "n1")
    assert recorder.finish(BOUND) and told.problems == []
    copy = tmp_path / "runs" / "7.3.0" / "journal" / "n1" / "journal-launch.jsonl"
    assert copy.read_bytes() == (folder / "journal-launch.jsonl").read_bytes()
    result = replay(copy)
    assert (result.difference, result.events) == (None, len(LIFE) + 1)
    lines = list(story(copy))
    assert lines[0] == "=== launch of job 7, on n1"
    assert any('VerdictRead(verdict=(outcome="failed"' in line for line in lines)
    assert any("because: the batch script ends the job" in line for line in lines)


def test_two_processes_in_one_file_replay(folder: Path) -> None:
    for _ in range(2):
        recorder = Recorder(folder, BEGIN, 100.1, pytest.fail)
        record(recorder)
        assert recorder.finish(BOUND)
    assert replay(folder / "journal-launch.jsonl").events == 2 * (len(LIFE) + 1)


def forget_the_signal(lines: list[str]) -> None:
    (at,) = (at for at, line in enumerate(lines) if '"Signalled"' in line)
    del lines[at]


def change_the_code(lines: list[str]) -> None:
    (at,) = (at for at, line in enumerate(lines) if '"Leave"' in line)
    value = json.loads(lines[at])
    value["actions"][-1]["code"] = 0
    lines[at] = json.dumps(value)


def allow_more_time(lines: list[str]) -> None:
    header = json.loads(lines[0])
    header["begin"]["host"] = None
    lines[0] = json.dumps(header)


@pytest.mark.parametrize("change", [forget_the_signal, change_the_code, allow_more_time])
def test_a_changed_journal_differs(folder: Path, change: Callable[[list[str]], None]) -> None:
    recorder = Recorder(folder, BEGIN, 100.1, pytest.fail)
    record(recorder)
    assert recorder.finish(BOUND)
    path = folder / "journal-launch.jsonl"
    lines = path.read_text().splitlines()
    change(lines)
    path.write_text("".join(f"{line}\n" for line in lines))
    assert replay(path).difference is not None


def test_a_folder_that_cannot_be_made_costs_one_line(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "ft").write_text("in the way")
    told = Problems()
    recorder = Recorder(folder, BEGIN, 100.1, told)
    record(recorder)
    assert recorder.finish(BOUND)
    (problem,) = told.problems
    assert problem.startswith("no journal: ") and str(tmp_path / "ft") in problem


def test_a_full_disk_costs_one_line(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    (folder.parent.parent).chmod(0o700)
    (folder / "journal-launch.jsonl").symlink_to("/dev/full")
    told = Problems()
    recorder = Recorder(folder, BEGIN, 100.1, told)
    record(recorder)
    assert recorder.finish(BOUND)
    (problem,) = told.problems
    assert problem.startswith("no journal any more: ") and "No space left on device" in problem


def test_a_run_folder_that_takes_no_copy_costs_one_line(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    told = Problems()
    recorder = Recorder(folder, BEGIN, 100.1, told)
    recorder.publish(tmp_path / "runs" / "7.3.0", "n1")
    assert recorder.finish(BOUND)
    (problem,) = told.problems
    assert problem.startswith(f"the journal stays in {folder}: ")


def test_a_disk_that_hangs_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr("ft_supervisor.daemon.files.make_local_folder", lambda _: goes_on.wait(BOUND))
    told = Problems()
    recorder = Recorder(folder, BEGIN, 100.1, told)
    record(recorder)
    assert not recorder.finish(0.01)
    goes_on.set()


def test_each_name_in_a_journal_is_of_one_type() -> None:
    for event in LIFE:
        assert KINDS[type(event).__name__] is type(event)
    assert load({"type": "Signalled", "name": "SIGTERM"}) == Signalled("SIGTERM")

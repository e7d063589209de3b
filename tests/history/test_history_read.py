"""Tests reading a run's folder: each damaged or missing file gives one line in the notes."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.history.recordings import RECORDED
from tests.launch.test_launch_journal import BEGIN, BOUND, record

from ft_supervisor.history import builder, read_run
from ft_supervisor.history.fact import JournalFacts
from ft_supervisor.history.model import CycleEnd, History, SpanState
from ft_supervisor.history.read_run import read
from ft_supervisor.launch.journal import Recorder

COORDINATOR = "journal/node0/journal-coordinator-1.jsonl"
AGENT = "journal/node1/journal-agent-1.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a recorded run's folder."""

    def copy(case: str) -> Path:
        folder = tmp_path / "4242.0.0"
        shutil.copytree(RECORDED / case / "4242.0.0", folder)
        return folder

    return copy


def test_a_journal_cut_in_the_middle_of_a_line_is_read_up_to_there(run: Callable[[str], Path]) -> None:
    folder = run("running")
    content = (folder / COORDINATOR).read_bytes()
    (folder / COORDINATOR).write_bytes(content[: content.index(b"CycleFailed") + 5])
    history = read(folder)
    assert [cycle.ended for cycle in history.cycles] == [CycleEnd.RUNNING]
    assert f"{COORDINATOR}: 1 line is cut off or damaged" in history.notes
    (folder / COORDINATOR).write_bytes(content[:-1])
    history = read(folder)
    assert [cycle.ended for cycle in history.cycles] == [CycleEnd.FAILED, CycleEnd.RUNNING]
    assert f"{COORDINATOR}: 1 line is cut off or damaged" in history.notes


def test_a_folder_without_journals_has_a_verdict_at_most(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    shutil.rmtree(folder / "journal")
    history = read(folder)
    assert history.verdict is not None and not history.cycles and history.start is None
    assert history.notes == ("no journal: neither nodes nor cycles are known",)


def test_a_verdict_that_is_none_is_told(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    (folder / "verdict.json").write_text("{")
    history = read(folder)
    assert any(note.startswith("verdict: ") and "not JSON" in note for note in history.notes)
    assert history.verdict is not None, "the coordinator's journal has it as well"


def test_another_version_is_told_and_the_others_are_read(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    (folder / AGENT).write_text('{"journal":3,"protocol":2}\n')
    history = read(folder)
    assert any(note.startswith(f"{AGENT}: it is of version 3") for note in history.notes)
    assert len(history.cycles) == 2


def test_no_coordinator_s_journal_is_told(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    (folder / COORDINATOR).unlink()
    history = read(folder)
    assert any(note.startswith("no coordinator's journal") for note in history.notes)
    assert [cycle.number for cycle in history.cycles] == ["0.0", "0.1"]


def test_what_is_no_file_is_passed_over(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    (folder / AGENT).unlink()
    os.mkfifo(folder / AGENT)
    (folder / "journal/node9").write_text("not a folder")
    (folder / "journal/node2/journal-agent-7.jsonl").mkdir()
    history = read(folder)
    assert any(note.startswith(AGENT) for note in history.notes)
    assert any("journal-agent-7" in note for note in history.notes)
    assert len(history.cycles) == 2


def test_agents_beyond_the_budget_are_left_out_and_told(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    history = read(folder, budget=(folder / "journal/node0/journal-agent-1.jsonl").stat().st_size)
    assert any(note.startswith("2 agents' journals were not read") for note in history.notes)
    assert len(history.cycles) == 2 and history.cycles[0].loss is not None and history.cycles[0].loss.stop is not None


def test_a_thousand_damaged_journals_are_told_in_a_few_lines(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    for rank in range(1000):
        path = folder / f"journal/n{rank}/journal-agent-1.jsonl"
        path.parent.mkdir()
        path.write_text("{")
    notes = read(folder).notes
    assert len(notes) < 20 and f"and {1000 - read_run.MOST_NOTES} more lines like these" in notes


def test_a_full_journal_goes_on_in_its_other_parts(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    whole = read(folder)
    path = folder / COORDINATOR
    lines = path.read_bytes().splitlines(keepends=True)
    middle = next(i for i, line in enumerate(lines) if b"CycleFailed" in line)
    full = json.dumps({"full": "what follows can be read, but not replayed", "rest": "x"}).encode() + b"\n"
    begin = json.dumps({"rest": "for reading only"}).encode() + b"\n"
    path.write_bytes(b"".join([*lines[:middle], full]))
    path.with_suffix(".rest-old.jsonl").write_bytes(b"".join([begin, *lines[middle : middle + 3]]))
    path.with_suffix(".rest.jsonl").write_bytes(b"".join([begin, *lines[middle + 3 :]]))
    history = read(folder)
    assert history.cycles == whole.cycles and history.nodes == whole.nodes
    assert history.notes == (f"{COORDINATOR}: it reached its bound, and some of it was left out",)


def test_a_line_without_end_is_read_in_pieces(run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run("crash")
    monkeypatch.setattr(read_run, "MAX_LINE", 64 * 1024)
    with (folder / COORDINATOR).open("ab") as file:
        file.write(b"x" * (1024 * 1024))
    history = read(folder)
    assert f"{COORDINATOR}: 16 lines are cut off or damaged" in history.notes
    assert len(history.cycles) == 2


def test_the_first_failing_rank_s_lines_are_the_end_of_its_own_file(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    (folder / "logs/0.0/rank1.log").write_text("".join(f"step {i}\n" for i in range(20_000)) + "y" * 5000 + "\n")
    failure = read(folder).first_failure
    assert failure is not None and failure.source == "logs/0.0/rank1.log"
    assert len(failure.lines) == read_run.LAST_LINES and failure.lines[-2] == "step 19999"
    assert len(failure.lines[-1]) < 1100


def test_of_a_file_that_was_just_begun_the_former_part_is_read_too(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    path = folder / "logs/0.0/rank1.log"
    path.with_name("rank1.log.1").write_text("".join(f"step {i}\n" for i in range(100)))
    path.write_text("RuntimeError: CUDA error\n")
    failure = read(folder).first_failure
    assert failure is not None and failure.lines[-2:] == ("step 99", "RuntimeError: CUDA error")
    assert len(failure.lines) == read_run.LAST_LINES


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    path = folder / "logs/0.0/rank1.log"
    path.unlink()
    os.mkfifo(path)
    failure = read(folder).first_failure
    assert failure is not None and not failure.source and failure.lines


def test_without_the_file_they_are_what_the_agent_has_quoted(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    shutil.rmtree(folder / "logs")
    failure = read(folder).first_failure
    assert failure is not None and not failure.source
    assert failure.lines and failure.lines[-1].startswith("event=worker restart=0 rank=1")


def test_of_thousands_of_daemons_a_few_tell_when_it_began(
    run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run("crash")
    whole = read(folder)
    (folder / "journal/node2/journal-daemon.jsonl").write_text("{\n")
    assert any("journal-daemon.jsonl: 1 line is cut off" in note for note in read(folder).notes)
    monkeypatch.setattr(read_run, "MOST_DAEMONS", 2)
    history = read(folder)
    assert not history.notes and history.start == whole.start and history.nodes == whole.nodes


def test_the_journal_of_launch_is_about_no_node(run: Callable[[str], Path]) -> None:
    folder = run("crash")
    whole = read(folder)
    recorder = Recorder(folder / "journal" / "login1", BEGIN, 100.1, pytest.fail)
    record(recorder)
    assert recorder.finish(BOUND)
    assert (folder / "journal" / "login1" / "journal-launch.jsonl").stat().st_size > 1000
    assert read(folder) == whole


def test_the_names_of_all_nodes_are_kept_once(run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of ten thousand journals contains them."""
    kept: list[tuple[str, ...]] = []

    def build(run_id: str, told: Sequence[JournalFacts], *rest: Any, **more: Any) -> History:
        kept.extend(each.nodes for each in told)
        return builder.build(run_id, told, *rest, **more)

    monkeypatch.setattr(read_run, "build", build)
    assert len(read(run("crash")).nodes) == 3
    assert len(kept) > 5 and len({id(names) for names in kept}) == 1


def test_ten_thousand_nodes_are_read_in_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "4242.0.0"
    lines = (RECORDED / "crash/4242.0.0" / COORDINATOR).read_text().splitlines()
    names = [f"node{rank}" for rank in range(10_000)]
    changed = []
    for line in lines:
        value = json.loads(line)
        if isinstance(value, dict):
            if "begin" in value:
                value["begin"]["job"]["nodes"] = names
            for action in value.get("actions", ()):
                if action["type"] == "Announce" and action["fact"]["type"] == "CycleStarted":
                    action["fact"]["group"] = list(range(9_999))
        changed.append(json.dumps(value))
    (folder / COORDINATOR).parent.mkdir(parents=True)
    (folder / COORDINATOR).write_text("\n".join(changed) + "\n")
    history = read(folder)
    assert len(history.nodes) == 10_000 and len(history.cycles[0].nodes) == 9_999
    assert history.nodes[9_998].spans[0].state is SpanState.ACTIVE

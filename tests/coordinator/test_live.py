"""status.json and the journal's copy: what is written, when, by whom, and that nothing waits for it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.machines import C0, Talk, failed, stopped
from tests.run_folder.test_snapshot import successor

from ft_supervisor.coordinator.live import COPY_EVERY, SOONEST, JournalCopy, Live, StatusFile
from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.protocol.model import Memory, Node
from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.journal import journal as journals
from ft_supervisor.journal.journal import Journal
from ft_supervisor.process import atomic
from ft_supervisor.run_folder.snapshot import EVERY, NAME, DecisionStatus, Snapshot, dump, load

BOUND = 60.0


def wait_for(piece: object) -> None:
    assert piece is not None and piece.wait(BOUND)  # type: ignore[attr-defined]


def there(folder: Path) -> Snapshot:
    return load((folder / NAME).read_bytes())


@pytest.fixture
def talk() -> Talk:
    talk = Talk()
    talk.begin()
    talk.wait(1)
    return talk


def shot_of(talk: Talk) -> Snapshot:
    return snapshot(talk.machine, talk.now, 1000.0 + talk.now)


# -- when


class Rounds:
    """A Live whose writes are over before the next beat."""

    def __init__(self, folder: Path, talk: Talk) -> None:
        self.folder, self.talk = folder, talk
        self.live = Live(folder, Node(0, "n0", ""), folder / "journal-coordinator-1.jsonl")
        self.written: list[float] = []
        self.now = 0.0

    def beat(self, seconds: float) -> bool:
        """Whether that made a new status file."""
        self.now += seconds
        (self.folder / NAME).unlink(missing_ok=True)
        self.live.beat(self.talk.machine, self.now)
        for piece in (self.live._writing, self.live._copying):
            assert piece is None or piece.wait(BOUND)
        return (self.folder / NAME).exists()


def test_every_two_seconds_and_sooner_when_something_happened(tmp_path: Path, talk: Talk) -> None:
    rounds = Rounds(tmp_path, talk)
    assert rounds.beat(0.0)
    assert not rounds.beat(EVERY - 0.1)
    assert rounds.beat(0.2)
    rounds.live.news()
    assert not rounds.beat(SOONEST - 0.1)
    assert rounds.beat(0.2)
    assert not rounds.beat(SOONEST + 0.1)


def test_a_candidate_writes_nothing(tmp_path: Path) -> None:
    candidate = Talk(infra_rank=1)
    rounds = Rounds(tmp_path, candidate)
    assert not rounds.beat(10.0)
    assert rounds.live.end(candidate.machine, 0.0) == []
    assert list(tmp_path.iterdir()) == []


def test_nobody_waits_for_a_file_system_that_hangs(tmp_path: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody reads stands in for it."""
    live = Live(tmp_path, Node(0, "n0", ""), tmp_path / "journal-coordinator-1.jsonl")
    pipe, replace = tmp_path / "pipe", atomic.replace
    os.mkfifo(pipe)

    def hang(path: Path, data: bytes) -> None:
        if pipe.exists():  # the first one
            pipe.write_bytes(data)
            pipe.unlink()
        replace(path, data)

    monkeypatch.setattr(atomic, "replace", hang)
    before = threading.active_count()
    began = time.monotonic()
    for number in range(50):
        live.beat(talk.machine, number * EVERY)
    last = live.end(talk.machine, 100 * EVERY)
    took = time.monotonic() - began
    assert took < 5.0 and not last[0].wait(0)
    assert threading.active_count() - before <= 5  # and not fifty
    with pipe.open("rb") as reader:  # it answers again
        assert load(reader.read()).phase == "running"
    for piece in last:
        wait_for(piece)
    assert there(tmp_path).run_id == "1.0.0"


def test_what_cannot_be_written_is_said_once(tmp_path: Path, talk: Talk, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    status = StatusFile(tmp_path / "file")
    for _ in range(3):
        status.write(shot_of(talk))
    assert capfd.readouterr().err.count("event=file_failed") == 1


def test_a_snapshot_that_cannot_be_made_ends_nothing(
    tmp_path: Path, talk: Talk, capfd: pytest.CaptureFixture[str]
) -> None:
    live = Live(tmp_path, Node(0, "n0", ""), tmp_path / "journal-coordinator-1.jsonl")
    talk.machine.state.cycles = None  # type: ignore[assignment]
    talk.machine.state.cycles  # noqa: B018 - nothing of it can be shown
    live.beat(talk.machine, 0.0)
    live.beat(talk.machine, 100.0)
    assert capfd.readouterr().err.count("event=file_failed") == 1
    assert not (tmp_path / NAME).exists()


# -- who


def test_a_deposed_coordinator_does_not_overwrite_a_newer_terms(tmp_path: Path, talk: Talk) -> None:
    old, new = shot_of(talk), shot_of(successor())
    assert (new.coordinator.term or 0) > (old.coordinator.term or 0)
    first, second = (StatusFile(tmp_path) for rank in (0, 1))
    first.write(old)
    second.write(new)
    first.write(old)
    assert there(tmp_path).coordinator.node == "n1"
    second.write(replace(new, time=7.0))
    assert there(tmp_path).time == 7.0


def test_a_successor_keeps_what_only_its_predecessor_knew(tmp_path: Path, talk: Talk) -> None:
    talk.hear(failed(1))
    for rank in range(3):
        talk.hear(stopped(rank))
    old = shot_of(talk)
    assert old.cycle is not None and old.decision is not None
    (tmp_path / NAME).write_bytes(dump(old))
    new = shot_of(successor())
    assert new.cycle is not None and new.cycle.name == str(C0)
    status = StatusFile(tmp_path)
    status.write(replace(new, cycle=replace(new.cycle, name=old.cycle.name)))
    assert there(tmp_path).cycle == old.cycle
    status.write(new)  # another cycle than the one that it knew
    assert there(tmp_path).cycle == new.cycle
    assert there(tmp_path).decision == old.decision
    other = StatusFile(tmp_path)
    other.write(replace(new, run_id="another"))
    assert there(tmp_path).decision is None


def test_whoever_takes_over_once_more_asks_its_newest_predecessor(tmp_path: Path, talk: Talk) -> None:
    def in_charge(shot: Snapshot, term: int, reason: str | None) -> Snapshot:
        decision = None if reason is None else DecisionStatus("restart", reason, None, None, 1.0)
        return replace(shot, coordinator=replace(shot.coordinator, term=term), decision=decision)

    shot = shot_of(talk)
    first, other = (StatusFile(tmp_path) for rank in (0, 1))
    first.write(in_charge(shot, 0, "the first one's"))
    other.write(in_charge(shot, 1, None))
    other.write(in_charge(shot, 1, "the other one's"))
    first.write(in_charge(shot, 3, None))
    found = there(tmp_path).decision
    assert found is not None and found.reason == "the other one's"


@pytest.mark.parametrize("what", ["half", "garbage", "huge", "pipe", "folder"])
def test_whatever_has_the_name_is_replaced(tmp_path: Path, talk: Talk, what: str) -> None:
    path = tmp_path / NAME
    match what:
        case "half":
            path.write_bytes(dump(shot_of(successor()))[:-30])
        case "garbage":
            path.write_text(json.dumps({"run_id": "another", "coordinator": {"term": 10**9}}))
        case "huge":
            with path.open("wb") as file:
                file.truncate(2**40)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    status = StatusFile(tmp_path)
    status.write(shot_of(talk))
    if what == "folder":  # which is somebody's, and stays
        assert path.is_dir() and list(tmp_path.iterdir()) == [path]
        path.rmdir()
        status.write(shot_of(talk))
    assert there(tmp_path).phase == "running"
    assert list(tmp_path.iterdir()) == [path]


# -- the journal


class Source:
    """A journal of few bytes, so that it goes on in its rest soon."""

    def __init__(self, folder: Path, limit: int) -> None:
        talk = Talk()
        begin = Begin(talk.job, Node(0, "n0", ""), 1, Memory())
        self.journal = Journal.open(folder, "coordinator-1", begin, 0.0, pytest.fail, limit)
        self.folder = folder

    def grow(self, lines: int) -> None:
        for _ in range(lines):
            self.journal._write(json.dumps({"line": "x" * 100}))

    def parts(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.glob("journal-*")}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    source = Source(tmp_path / "local", 20_000)
    yield source
    source.journal.close()


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_copy_grows_with_the_journal(tmp_path: Path, source: Source) -> None:
    copy = JournalCopy(source.journal.path, tmp_path / "shared", "n0")
    copy.update()
    inode = (tmp_path / "shared" / "journal" / "n0" / source.journal.path.name).stat().st_ino
    for _ in range(3):
        source.grow(7)
        copy.update()
        assert parts(tmp_path / "shared" / "journal" / "n0") == source.parts()
    assert (
        tmp_path / "shared" / "journal" / "n0" / source.journal.path.name
    ).stat().st_ino == inode  # only what is new


def test_the_copy_follows_the_journal_into_its_rest(tmp_path: Path, source: Source) -> None:
    copy = JournalCopy(source.journal.path, tmp_path, "n0")
    seen: set[str] = set()
    for _ in range(60):
        source.grow(11)
        copy.update()
        assert parts(tmp_path / "journal" / "n0") == source.parts()
        seen |= source.parts().keys()
    assert len(seen) == 3


def test_a_former_copy_under_the_name_is_replaced(tmp_path: Path, source: Source) -> None:
    folder = tmp_path / "journal" / "n0"
    folder.mkdir(parents=True)
    (folder / source.journal.path.name).write_text("longer than what there is now" * 1000)
    JournalCopy(source.journal.path, tmp_path, "n0").update()
    assert parts(folder) == source.parts()


def test_a_copy_that_somebody_removes_is_made_anew(
    tmp_path: Path, source: Source, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = JournalCopy(source.journal.path, tmp_path, "n0")
    copy.update()
    (tmp_path / "journal" / "n0" / source.journal.path.name).unlink()
    source.grow(1)
    copy.update()
    assert "event=file_failed" in capfd.readouterr().err
    copy.update()
    assert parts(tmp_path / "journal" / "n0") == source.parts()


def test_the_daemons_copy_takes_its_place(tmp_path: Path, source: Source) -> None:
    folder = tmp_path / "journal" / "n0"
    copy = JournalCopy(source.journal.path, tmp_path, "n0")
    copy.update()
    source.grow(5)
    journals.publish(source.folder, tmp_path, "n0")
    assert parts(folder) == source.parts()
    source.grow(5)
    copy.update()  # of a coordinator that hung until now
    assert parts(folder) == source.parts()


def test_the_journal_is_copied_now_and_then_and_at_the_end(tmp_path: Path, source: Source, talk: Talk) -> None:
    live = Live(tmp_path / "run", Node(0, "n0", ""), source.journal.path)
    copy = tmp_path / "run" / "journal" / "n0" / source.journal.path.name
    live.beat(talk.machine, 0.0)
    wait_for(live._copying)
    size = copy.stat().st_size
    source.grow(3)
    live.beat(talk.machine, COPY_EVERY - 1)
    wait_for(live._copying)
    assert copy.stat().st_size == size
    live.beat(talk.machine, COPY_EVERY)
    wait_for(live._copying)
    assert copy.read_bytes() == source.journal.path.read_bytes()
    source.grow(3)
    for piece in live.end(talk.machine, COPY_EVERY + 1):
        wait_for(piece)
    assert copy.read_bytes() == source.journal.path.read_bytes()
    assert there(tmp_path / "run").phase == "running"


def test_a_part_that_got_the_inode_of_a_former_one_is_copied_anew(tmp_path: Path, source: Source) -> None:
    copy = JournalCopy(source.journal.path, tmp_path, "n0")
    old, rest = (source.journal.path.with_suffix(suffix) for suffix in (".rest-old.jsonl", ".rest.jsonl"))
    old.write_bytes(b"former\n" * 10)
    copy.update()
    old.replace(rest)  # stands in for an inode that is free and taken again
    rest.write_bytes(b"new\n" * 100)
    copy.update()
    assert (tmp_path / "journal" / "n0" / rest.name).read_bytes() == rest.read_bytes()

"""The copy of the coordinator's journal: its content, when it is made, and how it follows the journal's parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.machines import Talk

from ft_supervisor.coordinator.journal_copier import EVERY, JournalCopier
from ft_supervisor.core.protocol.model import Memory, Node
from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.journal import journal as journals
from ft_supervisor.journal.journal import Journal
from ft_supervisor.process.background import Background

BOUND = 60.0


def wait_for(piece: Background[None] | None) -> None:
    assert piece is not None and piece.wait(BOUND)


@pytest.fixture
def talk() -> Talk:
    talk = Talk()
    talk.begin()
    talk.wait(1)
    return talk


class Source:
    """A journal of few bytes, so that it soon continues in its next part."""

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
    copy = JournalCopier(source.journal.path, tmp_path / "shared", "n0")
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
    copy = JournalCopier(source.journal.path, tmp_path, "n0")
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
    JournalCopier(source.journal.path, tmp_path, "n0").update()
    assert parts(folder) == source.parts()


def test_a_copy_that_is_removed_is_made_anew(tmp_path: Path, source: Source, capfd: pytest.CaptureFixture[str]) -> None:
    copy = JournalCopier(source.journal.path, tmp_path, "n0")
    copy.update()
    (tmp_path / "journal" / "n0" / source.journal.path.name).unlink()
    source.grow(1)
    copy.update()
    assert "event=file_failed" in capfd.readouterr().err
    copy.update()
    assert parts(tmp_path / "journal" / "n0") == source.parts()


def test_the_daemons_copy_takes_its_place(tmp_path: Path, source: Source) -> None:
    folder = tmp_path / "journal" / "n0"
    copy = JournalCopier(source.journal.path, tmp_path, "n0")
    copy.update()
    source.grow(5)
    journals.publish(source.folder, tmp_path, "n0")
    assert parts(folder) == source.parts()
    source.grow(5)
    copy.update()  # of a coordinator that hung until now
    assert parts(folder) == source.parts()


def test_the_journal_is_copied_at_intervals_and_at_the_end(tmp_path: Path, source: Source, talk: Talk) -> None:
    copier = JournalCopier(source.journal.path, tmp_path / "run", "n0")
    copy = tmp_path / "run" / "journal" / "n0" / source.journal.path.name
    copier.beat(talk.machine, 0.0)
    wait_for(copier._copying)
    size = copy.stat().st_size
    source.grow(3)
    copier.beat(talk.machine, EVERY - 1)
    wait_for(copier._copying)
    assert copy.stat().st_size == size
    copier.beat(talk.machine, EVERY)
    wait_for(copier._copying)
    assert copy.read_bytes() == source.journal.path.read_bytes()
    source.grow(3)
    for piece in copier.end(talk.machine):
        wait_for(piece)
    assert copy.read_bytes() == source.journal.path.read_bytes()


def test_a_part_that_got_the_inode_of_a_former_one_is_copied_anew(tmp_path: Path, source: Source) -> None:
    copy = JournalCopier(source.journal.path, tmp_path, "n0")
    old, rest = (source.journal.path.with_suffix(suffix) for suffix in (".rest-old.jsonl", ".rest.jsonl"))
    old.write_bytes(b"former\n" * 10)
    copy.update()
    old.replace(rest)  # stands in for an inode that is free and taken again
    rest.write_bytes(b"new\n" * 100)
    copy.update()
    assert (tmp_path / "journal" / "n0" / rest.name).read_bytes() == rest.read_bytes()


def test_a_candidate_copies_nothing(tmp_path: Path, source: Source) -> None:
    candidate = Talk(infra_rank=1)
    copier = JournalCopier(source.journal.path, tmp_path / "run", "n0")
    copier.beat(candidate.machine, EVERY)
    assert copier.end(candidate.machine) == []
    assert copier._copying is None and not (tmp_path / "run").exists()

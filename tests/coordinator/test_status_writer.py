"""status.json: its content, when and by which coordinator it is written, and that nothing waits for it."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.machines import C0, Talk, failed, job, stopped
from tests.run_folder.test_snapshot import successor

from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.coordinator.status_writer import SOONEST, StatusFile, StatusWriter
from ft_supervisor.core.protocol.checkpoint import CheckpointSeen
from ft_supervisor.core.protocol.coordinator_facts import CycleFailed, MajorityBack, TooFewNodes
from ft_supervisor.core.protocol.model import Cycle, Job
from ft_supervisor.core.protocol.settings import Cause, OnExhausted
from ft_supervisor.process import atomic
from ft_supervisor.run_folder.snapshot import (
    EVENTS,
    EVERY,
    NAME,
    CheckpointStatus,
    DecisionStatus,
    Snapshot,
    dump,
    load,
)

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


def at(folder: Path) -> Job:
    """Return a job whose run has this folder, and a step file in it."""
    plain = job()
    settings = replace(plain.settings, step_file=str(folder / "step"))
    return replace(plain, run_folder=str(folder), settings=settings)


# -- when


class Rounds:
    """A StatusWriter whose writes are over before the next beat."""

    def __init__(self, folder: Path, talk: Talk) -> None:
        self.folder, self.talk = folder, talk
        self.writer = StatusWriter(at(folder), "n0")
        self.written: list[float] = []
        self.now = 0.0

    def beat(self, seconds: float) -> bool:
        """Return whether that made a new status file."""
        self.now += seconds
        (self.folder / NAME).unlink(missing_ok=True)
        self.writer.beat(self.talk.machine, self.now)
        assert self.writer._writing is None or self.writer._writing.wait(BOUND)
        return (self.folder / NAME).exists()


def test_every_two_seconds_and_sooner_when_something_happened(tmp_path: Path, talk: Talk) -> None:
    rounds = Rounds(tmp_path, talk)
    assert rounds.beat(0.0)
    assert not rounds.beat(EVERY - 0.1)
    assert rounds.beat(0.2)
    rounds.writer.news(TooFewNodes("too few", OnExhausted.FAIL))
    assert not rounds.beat(SOONEST - 0.1)
    assert rounds.beat(0.2)
    assert not rounds.beat(SOONEST + 0.1)


def test_a_candidate_writes_nothing(tmp_path: Path) -> None:
    candidate = Talk(infra_rank=1)
    rounds = Rounds(tmp_path, candidate)
    assert not rounds.beat(10.0)
    assert rounds.writer.end(candidate.machine, 0.0) == []
    assert list(tmp_path.iterdir()) == []


def test_nothing_waits_for_a_file_system_that_hangs(
    tmp_path: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe without a reader stands in for it."""
    writer = StatusWriter(at(tmp_path), "n0")
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
        writer.beat(talk.machine, number * EVERY)
    last = writer.end(talk.machine, 100 * EVERY)
    took = time.monotonic() - began
    assert took < 5.0 and not last[0].wait(0)
    assert threading.active_count() - before <= 5  # and not fifty
    with pipe.open("rb") as reader:  # it answers again
        assert load(reader.read()).phase == "running"
    for piece in last:
        wait_for(piece)
    assert there(tmp_path).run_id == "1.0.0"


def test_each_new_checkpoint_is_told_once(tmp_path: Path, talk: Talk) -> None:
    told: list[CheckpointSeen] = []
    writer = StatusWriter(at(tmp_path), "n0", told.append)
    for number, (step, written) in enumerate([(None, 0), (10, 5000), (10, 5000), (12, 6000.5)]):
        if step is not None:
            (tmp_path / "step").write_text(f"{step}")
            os.utime(tmp_path / "step", (written, written))
        writer.beat(talk.machine, number * EVERY)
        assert writer._writing is not None and writer._writing.wait(BOUND)
    assert told == [CheckpointSeen(10, 5000.0), CheckpointSeen(12, 6000.5)]
    before = talk.machine.cycle
    assert talk.machine.handle(told[0], talk.now) == [] and talk.machine.cycle == before, "for the journal alone"


def test_a_repeated_failure_is_logged_once(tmp_path: Path, talk: Talk, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    status = StatusFile(tmp_path / "file")
    for _ in range(3):
        status.write(shot_of(talk))
    assert capfd.readouterr().err.count("event=file_failed") == 1


def test_a_snapshot_that_cannot_be_made_ends_nothing(
    tmp_path: Path, talk: Talk, capfd: pytest.CaptureFixture[str]
) -> None:
    writer = StatusWriter(at(tmp_path), "n0")
    talk.machine.state.cycles = None  # type: ignore[assignment]
    talk.machine.state.cycles  # noqa: B018 - nothing of it can be shown
    writer.beat(talk.machine, 0.0)
    writer.beat(talk.machine, 100.0)
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
    status.write(new)  # another cycle than the predecessor's
    assert there(tmp_path).cycle == new.cycle
    assert there(tmp_path).decision == old.decision
    other = StatusFile(tmp_path)
    other.write(replace(new, run_id="another"))
    assert there(tmp_path).decision is None


def test_a_second_takeover_reads_the_newest_predecessor(tmp_path: Path, talk: Talk) -> None:
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
def test_any_file_of_the_name_is_replaced(tmp_path: Path, talk: Talk, what: str) -> None:
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
    if what == "folder":  # which another program made, and which stays
        assert path.is_dir() and list(tmp_path.iterdir()) == [path]
        path.rmdir()
        status.write(shot_of(talk))
    assert there(tmp_path).phase == "running"
    assert list(tmp_path.iterdir()) == [path]


# -- what


def test_the_last_events_and_the_newest_checkpoint(tmp_path: Path, talk: Talk) -> None:
    writer = StatusWriter(at(tmp_path), "n0")
    step = tmp_path / "step"

    def written(now: float) -> Snapshot:
        for piece in writer.end(talk.machine, now):
            wait_for(piece)
        return there(tmp_path)

    assert (written(0.0).checkpoint, written(0.0).events) == (None, ())
    step.write_text("1700\n")
    os.utime(step, (5000.0, 5000.0))
    assert written(1.0).checkpoint == CheckpointStatus(1700, 5000.0)
    step.unlink()  # it is just being replaced
    assert written(2.0).checkpoint == CheckpointStatus(1700, 5000.0)
    step.write_text("")
    assert written(3.0).checkpoint == CheckpointStatus(1700, 5000.0)
    for number in range(EVENTS + 1):
        writer.news(CycleFailed(Cycle(0, number), "rank 2 (n1, local 0): ValueError: bad", Cause.EXIT, 1))
        writer.news(MajorityBack(0, "0-2"))  # no news for people
    texts = [event.text for event in written(4.0).events]
    assert texts == [
        f"cycle 0.{number} failed: rank 2 (n1, local 0): ValueError: bad" for number in range(1, EVENTS + 1)
    ]

"""Tests the state that a run's files give (fresh, stale, ended, broken), and the document for programs."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.core.machines import Talk

from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.run_folder import left_running, verdict_file
from ft_supervisor.run_folder.left_running import LeftRunning
from ft_supervisor.run_folder.snapshot import NAME, Snapshot, VerdictStatus, dump
from ft_supervisor.status import judgement
from ft_supervisor.status.judgement import STALE, Files, RunState, Slurm, document, judge, read, read_patiently

RUN = "1.0.0"
SUCCESS = Verdict(Outcome.SUCCESS, "all done")
AFTER = ["verdict", "left_running", "notes", "status"]
LEFT = LeftRunning(1, "no libslurmfull.so here", 1000.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / RUN
    folder.mkdir()
    return folder


def shot(at: float = 1000.0) -> Snapshot:
    talk = Talk(domains=["a", "a", "b", "b"])
    talk.begin()
    talk.wait(1)
    return snapshot(talk.machine, talk.now, at)


def put(folder: Path, what: Snapshot) -> None:
    temporary = folder / ".new"
    temporary.write_bytes(dump(what))
    temporary.replace(folder / NAME)


# -- read


def test_a_snapshot_and_a_verdict(folder: Path) -> None:
    made = folder.stat().st_mtime
    assert read(folder) == Files(folder, made=made)
    put(folder, shot())
    assert read(folder).snapshot == shot() and read(folder).verdict is None
    verdict_file.write(folder, SUCCESS, RUN, "nonce")
    written, made = (folder / verdict_file.NAME).stat().st_mtime, folder.stat().st_mtime
    assert read(folder) == Files(folder, shot(), SUCCESS, ended=written, made=made)


def test_a_final_verdict_in_the_snapshot_will_do(folder: Path) -> None:
    said = VerdictStatus("failed", "why not", 93, "never", final=True)
    put(folder, replace(shot(), verdict=said))
    found = read(folder).verdict
    assert found is not None and (found.outcome, found.exit_code) == (Outcome.FAILED, 93)
    put(folder, replace(shot(), verdict=replace(said, final=False)))
    assert read(folder).verdict is None
    put(folder, replace(shot(), verdict=replace(said, outcome="splendid")))
    assert read(folder).verdict is None


@pytest.mark.parametrize("what", ["half", "empty", "huge", "pipe", "folder", "loop", "foreign", "forbidden"])
def test_whatever_else_is_there_is_one_line(folder: Path, what: str) -> None:
    path = folder / NAME
    match what:
        case "half":
            path.write_bytes(dump(shot())[:300])
        case "empty":
            path.touch()
        case "huge":
            with path.open("wb") as file:
                file.truncate(2**40)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case "foreign":
            put(folder, replace(shot(), run_id="2.0.0"))
        case "forbidden":
            if os.geteuid() == 0:
                pytest.skip("root may read everything")
            put(folder, shot())
            path.chmod(0)
    began = time.monotonic()
    found = read(folder)
    assert time.monotonic() - began < 10
    assert found.snapshot is None
    (problem,) = found.problems
    assert NAME in problem and "\n" not in problem
    assert judge("1", found, None, 1000.0).state is RunState.UNKNOWN


def test_a_verdict_that_is_none_is_told(folder: Path) -> None:
    put(folder, shot())
    (folder / verdict_file.NAME).write_text("{}")
    found = read(folder)
    assert found.snapshot is not None and found.verdict is None
    assert verdict_file.NAME in found.problems[0]


# -- judged


def seen(now: float, slurm: Slurm | None = None, **changes: object) -> judgement.JobStatus:
    files = replace(Files(Path("/run") / RUN, shot(1000.0)), **changes)  # type: ignore[arg-type]
    return judge("1", files, slurm, now)


def test_the_age_says_whether_it_is_stale() -> None:
    fresh = seen(1000.0 + STALE - 1)
    assert (fresh.state, fresh.age, fresh.notes, fresh.job) == (RunState.RUNNING, STALE - 1, (), RUN)
    stale = seen(1000.0 + STALE + 1)
    assert stale.state is RunState.STALE and "coordinator is lost" in stale.notes[0]
    slow = seen(1000.0 + STALE + 1, snapshot=replace(shot(1000.0), interval=10.0))
    assert slow.state is RunState.RUNNING
    assert seen(5000.0, verdict=SUCCESS).state is RunState.ENDED
    assert seen(990.0).state is RunState.STALE  # from the future: somebody's clock is wrong, nobody knows whose


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        (Slurm("RUNNING"), "Slurm says RUNNING: its coordinator is lost"),
        (Slurm("FAILED", over=True), "Slurm says FAILED: it has ended, without a verdict"),
        (Slurm(""), "Slurm has no such job any more"),
    ],
)
def test_slurm_says_what_has_become_of_a_stale_job(slurm: Slurm, words: str) -> None:
    assert seen(9000.0, slurm).notes[0].startswith(words)


@pytest.mark.parametrize(
    ("slurm", "file", "age", "told"),
    [
        (None, True, 1.0, "no libslurmfull.so here"),
        (Slurm("RUNNING", restart_count=0), True, 1.0, "no libslurmfull.so here"),
        (Slurm("COMPLETED", over=True), True, 1.0, None),
        (Slurm(""), True, 1.0, None),
        (Slurm("RUNNING", restart_count=1), True, 1.0, None),  # the next run of the job
        (Slurm("PENDING", pending=True, restart_count=1), True, 1.0, None),
        (Slurm("RUNNING", restart_count=0), False, 1.0, None),  # its batch script is about to end
        (Slurm("RUNNING", restart_count=0), False, 500.0, "it is RUNNING 500 s after its verdict"),
        (Slurm("COMPLETED", over=True), False, 500.0, None),
        (None, False, 500.0, None),
    ],
)
def test_a_job_that_has_ended_and_still_runs(slurm: Slurm | None, file: bool, age: float, told: str | None) -> None:
    found = seen(1000.0 + age, slurm, verdict=SUCCESS, ended=1000.0, left=LEFT if file else None)
    assert found.state is RunState.ENDED
    assert (found.left is None) == (told is None)
    if found.left is not None:
        assert str(told) in found.left.why
        assert document(found)["left_running"] == {
            "why": found.left.why, "ends_it": "scancel 1", "since": 1000.0, "until": None
        }  # fmt: skip
    assert seen(1000.0 + age, slurm, ended=1000.0, left=LEFT).left is None, "without a verdict it is a running job"


def test_the_file_is_read_beside_the_verdict(folder: Path) -> None:
    left_running.write(folder, LEFT)
    assert read(folder).left is None
    verdict_file.write(folder, SUCCESS, RUN, "")
    found = read(folder)
    assert found.left == LEFT and judgement.is_in_doubt(found, 0.0)
    (folder / left_running.NAME).write_text("{}")
    found = read(folder)
    assert found.left is None and left_running.NAME in found.problems[0]
    assert found.ended is not None and not judgement.is_in_doubt(found, found.ended + 1)
    assert judgement.is_in_doubt(found, found.ended + 1000)


def test_without_any_file() -> None:
    assert judge("7", Files(), None, 0.0).state is RunState.NONE
    assert judge("7", Files(), Slurm("PENDING", "Resources", pending=True), 0.0).state is RunState.PENDING
    assert judge("7", Files(Path("/run/7.0.0")), Slurm("RUNNING"), 0.0).state is RunState.UNKNOWN


# -- patience


class Writer(threading.Thread):
    """Writes snapshots by a clock that is wrong, until it is stopped."""

    def __init__(self, folder: Path, off: float) -> None:
        super().__init__()
        self.folder, self.off, self.stop = folder, off, threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.1):
            put(self.folder, replace(shot(), time=time.time() + self.off))


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
def test_another_hosts_clock_may_be_wrong(folder: Path, off: float) -> None:
    put(folder, replace(shot(), time=time.time() + off))
    writer = Writer(folder, off)
    writer.start()
    try:
        files = read_patiently(folder)
    finally:
        writer.stop.set()
        writer.join()
    found = judge("1", files, None, time.time())
    assert found.state is RunState.RUNNING
    assert found.age is not None and found.age < 60
    assert files.skew == pytest.approx(-off, abs=60)
    assert "clock" in found.notes[0] and f"{off / abs(off) * 3600:+.0f}"[:3] in found.notes[0]


def test_what_does_not_change_is_stale_after_a_while(folder: Path) -> None:
    put(folder, replace(shot(), time=time.time() - 100, interval=0.2))
    began = time.monotonic()
    files = read_patiently(folder)
    assert time.monotonic() - began >= 0.2 * judgement.PATIENCE
    assert judge("1", files, None, time.time()).state is RunState.STALE


def test_a_verdict_ends_the_patience(folder: Path) -> None:
    put(folder, replace(shot(), time=time.time() - 1000, interval=100.0))
    timer = threading.Timer(0.3, verdict_file.write, (folder, SUCCESS, RUN, ""))
    timer.start()
    assert read_patiently(folder).verdict == SUCCESS
    timer.join()


def test_what_is_fresh_or_over_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_seconds: float) -> None:
        pytest.fail("nothing to wait for")

    # in judgement alone: other threads of this process sleep too
    monkeypatch.setattr(judgement, "time", SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=sleep))
    put(folder, replace(shot(), time=time.time()))
    assert read_patiently(folder).snapshot is not None
    verdict_file.write(folder, SUCCESS, RUN, "")
    put(folder, shot())
    assert read_patiently(folder).verdict == SUCCESS


# -- the document


def test_the_document_has_an_object_for_each_node() -> None:
    found = json.loads(json.dumps(document(seen(1004.0))))
    assert list(found) == ["version", "state", "job", "folder", "age", "slurm", *AFTER]
    assert (found["version"], found["state"], found["age"], found["folder"]) == (1, "running", 4.0, f"/run/{RUN}")
    told = found["status"]
    assert "names" not in told and told["candidates"] == [0, 1, 2]
    assert [(node["name"], node["role"], node["group_rank"], node["domain"]) for node in told["nodes"]] == [
        ("n0", "active", 0, "a"),
        ("n1", "active", 1, "a"),
        ("n2", "active", 2, "b"),
        ("n3", "standby", None, "b"),
    ]
    fields = "name infra_rank group_rank role domain heartbeat_age silent restarts losses running draining health"
    assert " ".join(told["nodes"][0]) == fields
    assert told["budgets"][0]["left"] == 3
    assert told["cycle"]["name"] == "0.0" and told["verdict"] is None


def test_the_documents_of_other_states() -> None:
    ended = document(seen(1004.0, verdict=SUCCESS))
    assert ended["verdict"] == {
        "outcome": "success",
        "reason": "all done",
        "again": "open",
        "exit_code": 0,
        "ending": "unknown",
    }
    pending = document(judge("7", Files(), Slurm("PENDING", "Resources", pending=True), 0.0))
    assert (pending["state"], pending["slurm"]) == ("pending", {"state": "PENDING", "reason": "Resources"})
    assert pending["status"] is pending["folder"] is pending["age"] is pending["verdict"] is None


def test_every_field_of_the_document_is_told_in_its_description() -> None:
    text = (judgement.__doc__ or "") + (Snapshot.__doc__ or "")
    for key in document(seen(1004.0)):
        assert key in text

"""Tests reading the file that `ft-supervisor fault` leaves in a run's folder, also if it is damaged."""

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history.recordings import RECORDED, recorded, shifted

from ft_supervisor.fault import record
from ft_supervisor.fault.messages import Act, Target, Verb
from ft_supervisor.history import read_run
from ft_supervisor.history.builder import build
from ft_supervisor.history.game_days import NAME, faults
from ft_supervisor.history.model import Fault, History

LINE = {"time": "2026-01-02T03:04:05.678+00:00", "act": "kill", "target": "worker", "node": "n1", "pids": [7]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of a recorded run's folder."""
    shutil.copytree(RECORDED / "crash/4242.0.0", tmp_path / "4242.0.0")
    return tmp_path / "4242.0.0"


def failed_at(history: History) -> float:
    """Return when the first cycle ended."""
    (end,) = [cycle.end for cycle in history.cycles[:1]]
    assert end is not None
    return end


def said(at: float, verb: Verb = Verb.KILL, **more: Any) -> Act:
    return Act(datetime.fromtimestamp(at, UTC).isoformat(), verb, Target.WORKER, "node1", (7,), **more)


def test_what_fault_writes_is_read_with_the_cycle_that_it_hit(folder: Path) -> None:
    assert record.NAME == NAME
    at = failed_at(recorded("crash"))
    record.append(folder, said(at + 0.02, rank=1))  # written down when it was done, and the cycle had ended
    record.append(folder, said(at - 0.5, Verb.FREEZE, rank=1, seconds=0.25, seed=7))
    record.append(folder, said(at - 1000, Verb.THAW, note="told to end"))
    thaw, freeze, kill = read_run.read(folder).faults
    assert (kill.act, kill.target, kill.node, kill.rank, kill.seconds) == ("kill", "worker", "node1", 1, None)
    assert kill.at == pytest.approx(at + 0.02, abs=1e-3)
    assert (freeze.act, freeze.seconds, freeze.seed, freeze.cycle) == ("freeze", 0.25, 7, "0.0")
    assert (thaw.act, thaw.note, thaw.cycle) == ("thaw", "told to end", "")
    assert (kill.hurts, thaw.hurts) == (True, False)


def test_a_run_without_faults_has_none(folder: Path) -> None:
    history = read_run.read(folder)
    assert history.faults == () and not history.notes


def test_a_node_s_clock_that_is_off_is_put_right() -> None:
    usual = build("4242.0.0", shifted("takeover", 2, 0.0), None)
    fault = Fault(failed_at(usual) + 3600, "kill", "worker", "node2")
    (found,) = build("4242.0.0", shifted("takeover", 2, 3600.0), None, faults=[fault]).faults
    assert found.at == pytest.approx(fault.at - 3600, abs=0.5) and found.cycle == "0.0"


def test_a_line_that_is_cut_off_is_told_and_the_others_are_read(folder: Path) -> None:
    whole = json.dumps(LINE)
    (folder / NAME).write_text(f"{whole}\n\x00\xff\n{whole}\n{whole[:40]}")
    history = read_run.read(folder)
    assert len(history.faults) == 2 and f"{NAME}: 2 lines are cut off or damaged" in history.notes


@pytest.mark.parametrize("what", ["pipe", "folder", "link"])
def test_what_is_no_file_is_told(folder: Path, what: str) -> None:
    path = folder / NAME
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    history = read_run.read(folder)
    assert history.faults == () and f"{NAME}: no regular file" in history.notes and len(history.cycles) == 2


def test_a_huge_one_is_read_in_part(folder: Path) -> None:
    line = json.dumps(LINE)
    (folder / NAME).write_text(f"{line}\n" * (read_run.MAX_FAULTS // len(line)) + f"{line}\n" * 100)
    history = read_run.read(folder)
    assert len(history.faults) == read_run.MAX_FAULTS // (len(line) + 1)
    assert f"{NAME}: only its first 4 MiB were read" in history.notes and len(history.notes) == 1
    (folder / NAME).write_text("x" * (2 * read_run.MAX_FAULTS))
    assert read_run.read(folder).faults == ()


@given(
    st.dictionaries(
        st.sampled_from([*LINE, "rank", "seconds", "seed", "note"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers()),
    )
)
def test_whatever_a_line_holds_is_a_fault_or_counted(odd: dict[str, Any]) -> None:
    found, bad = faults([json.dumps(LINE | odd).encode(), json.dumps(odd).encode(), b"7", b"[]", b"null", b"\xff"])
    assert len(found) + bad == 6 and bad >= 4
    for fault in found:
        assert fault.at > 0 and all(type(each) is str for each in (fault.act, fault.target, fault.node, fault.note))
        assert type(fault.rank) in (int, type(None))
        json.dumps([fault.at, fault.seconds], allow_nan=False)

"""The lines of `local`: each with its node's name, and one with all nodes' states from the run's status.json."""

import queue
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.machines import Talk, failed, stopped
from tests.run_folder.test_snapshot import successor
from tests.status.test_status import put

from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.local import snapshots
from ft_supervisor.local.terminal import Terminal
from ft_supervisor.process.log import LEAST_LEVEL, emit, setup
from ft_supervisor.process.log_lines import make_line
from ft_supervisor.run_folder.snapshot import NAME, Snapshot

NAMES = ["n0", "n1", "n2", "n3"]
BOUND = 30.0


class Shown:
    """A terminal and the lines of `local` itself that it has printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.terminal = Terminal(NAMES, self.lines.append)

    def see(self, talk: Talk) -> bool:
        return self.terminal.see(snapshot(talk.machine, talk.now, 0.0))

    def status(self) -> str:
        """Return the line that is printed now; "" for none."""
        before = len(self.lines)
        self.terminal.status()
        return "".join(self.lines[before:]).removeprefix("local| ")


def test_each_line_has_its_node_and_none_is_read() -> None:
    shown = Shown()
    for text in ("loss 0.1", "2026-11-21T12:00:00.123Z info event=active group_rank=0 writer=n0 proc=agent"):
        shown.terminal.line("n0", text)
    assert shown.lines == ["n0| loss 0.1", f"n0| {text}"]
    assert shown.status() == "n0 starting, n1 starting, n2 starting, n3 starting"


def test_a_change_is_shown_once() -> None:
    shown, talk = Shown(), Talk()
    talk.begin()
    assert shown.see(talk) and not shown.see(talk)
    assert shown.status() == "n0 active 0, n1 active 1, n2 active 2, n3 standby; in charge: n0"
    assert shown.status() == ""


def test_a_failure_and_the_restart() -> None:
    shown, talk = Shown(), Talk()
    talk.begin()
    shown.see(talk)
    assert shown.status() == "n0 active 0, n1 active 1, n2 active 2, n3 standby; in charge: n0"
    talk.hear(failed(1))
    shown.see(talk)
    assert shown.status() == "n0 stopping, n1 stopping, n2 stopping", "no state that was shown already"
    for infra_rank in range(3):
        talk.hear(stopped(infra_rank))
    shown.see(talk)
    assert shown.status() == "n0 active 0, n1 active 1, n2 active 2"


def test_a_lost_node() -> None:
    shown, talk = Shown(), Talk()
    talk.begin()
    talk.silent = {2}
    talk.wait(8)
    shown.see(talk)
    assert "n2 lost" in shown.status()
    shown.terminal.last()
    assert shown.lines[-1].count(", ") == 3 and "n2 lost" in shown.lines[-1], "the last line has all nodes"


def test_a_node_that_has_ended_stays_so() -> None:
    shown, talk = Shown(), Talk()
    talk.begin()
    shown.see(talk)
    shown.terminal.gone("n0", "gone (137)")
    shown.see(talk)
    assert shown.status() == "n0 gone (137), n1 active 1, n2 active 2, n3 standby"


def test_a_snapshot_of_an_older_term_changes_nothing() -> None:
    shown, former = Shown(), Talk()
    former.begin()
    assert shown.see(successor())
    before = shown.status()
    assert before == "n0 joining, n1 active 1, n2 active 2, n3 standby; in charge: n1"
    assert not shown.see(former) and shown.status() == ""


def test_snapshots_are_followed_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    found: queue.Queue[Snapshot] = queue.Queue()
    snapshots.follow(tmp_path, found.put)
    talk = Talk()
    talk.begin()
    first = snapshot(talk.machine, talk.now, 1.0)
    put(tmp_path, first)
    assert found.get(timeout=BOUND) == first
    (tmp_path / NAME).write_text("{")
    put(tmp_path, replace(first, time=2.0))
    assert found.get(timeout=BOUND).time == 2.0


def test_quiet_daemons_write_no_info_lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEAST_LEVEL, "warning")
    setup("agent", "n1")
    try:
        emit(make_line("standby"))
        emit(make_line("fenced", "warning"))
    finally:
        monkeypatch.undo()
        setup("", "")
    (line,) = capfd.readouterr().err.splitlines()
    assert " warning event=fenced " in line

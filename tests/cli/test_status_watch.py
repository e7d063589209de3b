"""`ft-supervisor status` as a process of its own: in a pipe that closes, and in a terminal that it redraws."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.runs import BOUND, a_run, end
from tests.status.test_status import put, shot

from ft_supervisor.cli import status
from ft_supervisor.core.protocol.model import JobPhase, Outcome, Verdict
from ft_supervisor.run_folder import find
from ft_supervisor.run_folder.runs import Wanted
from ft_supervisor.status.judgement import Files, JobStatus, Slurm, judge
from ft_supervisor.status.poll import StatusPoller

pytestmark = pytest.mark.usefixtures("no_slurm")


class Process:
    """The command with pipes, or with a terminal's other end."""

    def __init__(self, folder: Path, *words: str, **more: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ft_supervisor", "status", *words],
            cwd=folder,
            env={
                "PYTHONPATH": os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part),
                "PATH": str(folder / "nothing"),
                "TERM": "xterm",
                "LANG": "C.UTF-8",
            },
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **more},  # type: ignore[call-overload]
        )

    def end(self) -> tuple[int, str]:
        """Return its exit code and its output on stderr."""
        error = self.process.communicate(timeout=BOUND)[1]
        return self.process.returncode, (error or b"").decode()


def test_a_pipe_that_closes(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "12.0.0")
    many = replace(shot(), run_id="12.0.0", time=time.time() + 0.0)
    put(folder, replace(many, job="x" * 200_000))  # more than a pipe takes
    for words in (("12",), ("12", "--json"), ("12", "--watch"), ("12", "--watch", "--json")):
        one = Process(tmp_path, *words)
        assert one.process.stdout is not None
        put(folder, replace(many, job="x" * 200_000, time=time.time()))
        one.process.stdout.read(10)
        one.process.stdout.close()
        one.process.stdout = None
        assert one.end() == (0, ""), words


def test_a_pipe_that_closes_while_there_is_nothing_new(tmp_path: Path) -> None:
    a_run(tmp_path, "12.0.0", age=100)
    watch = Process(tmp_path, "12", "--watch")
    assert watch.process.stdout is not None
    watch.process.stdout.readline()
    watch.process.stdout.close()
    watch.process.stdout = None
    assert watch.end() == (4, "")


def test_watch_in_a_pipe_tells_what_is_new_until_the_end(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "12.0.0")
    watch = Process(tmp_path, "12", "--watch", "--json")
    assert watch.process.stdout is not None
    first = json.loads(watch.process.stdout.readline())
    assert first["state"] == "running"
    put(folder, replace(shot(), run_id="12.0.0", time=time.time(), phase=JobPhase.STOPPING))
    assert json.loads(watch.process.stdout.readline())["status"]["phase"] == "stopping"
    end(folder, Verdict(Outcome.FAILED, "why not"))
    last = json.loads(watch.process.stdout.readlines()[-1])
    assert (last["state"], last["verdict"]["outcome"]) == ("ended", "failed")
    assert watch.end() == (0, "")


def test_watch_tells_what_slurm_says_anew(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    waits = [Slurm("PENDING", reason, pending=True) for reason in ("Priority", "Priority", "Resources")]
    seen = [judge("12", Files(), slurm, 0.0) for slurm in (*waits, Slurm("CANCELLED", over=True))]

    class Asked(StatusPoller):
        def again(self) -> JobStatus:
            return seen.pop(0)

    monkeypatch.setattr(status, "LOOK_AGAIN", 0.0)
    look = Asked(find.RunSearch(Wanted(12), ()))
    assert status.StatusWatch(look, status.StatusPrinter(as_json=True, everything=False, events=True)).run() == 4
    told = [json.loads(line)["slurm"] for line in capfd.readouterr().out.splitlines()]
    assert [(each["state"], each["reason"]) for each in told] == [
        ("PENDING", "Priority"),
        ("PENDING", "Resources"),
        ("CANCELLED", ""),
    ]


def test_watch_before_there_is_anything(tmp_path: Path) -> None:
    code, error = Process(tmp_path, "12", "--watch").end()
    assert code == 3 and "nothing is known of job 12" in error


class Terminal:
    """A pseudo terminal of this size with `status --watch` in it."""

    def __init__(self, folder: Path, columns: int, rows: int, *words: str) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.watch = Process(folder, *words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        """Read until it has been shown."""
        deadline = time.monotonic() + BOUND
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._ours], [], [], 0.1)[0]:
                self.shown += os.read(self._ours, 1 << 16).decode()

    def rest(self) -> str:
        """Read all until its end."""
        while True:
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:  # EIO: the other end is closed
                data = b""
            if not data:
                os.close(self._ours)
                return self.shown
            self.shown += data.decode()


ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.mark.parametrize("columns", [40, 80])
def test_watch_in_a_terminal_redraws_and_leaves_the_last_picture(tmp_path: Path, columns: int) -> None:
    folder = a_run(tmp_path, "12.0.0")
    terminal = Terminal(tmp_path, columns, 30, "12", "--watch")
    terminal.until("running")
    put(folder, replace(shot(), run_id="12.0.0", time=time.time(), phase=JobPhase.STOPPING))
    terminal.until("stopping")
    end(folder)
    shown = terminal.rest()
    assert terminal.watch.end()[0] == 0
    assert shown.count(ENTER) == shown.count(LEAVE) == 1
    last = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", shown.partition(LEAVE)[2])
    assert "ended: success" in " ".join(last.split())
    assert max(map(len, last.splitlines())) <= columns


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_leaves_the_terminal_as_it_was(tmp_path: Path, number: int, code: int) -> None:
    a_run(tmp_path, "12.0.0")
    terminal = Terminal(tmp_path, 80, 6, "12", "--watch")
    terminal.until("more lines")
    terminal.watch.process.send_signal(number)
    shown = terminal.rest()
    assert terminal.watch.end()[0] == code
    assert shown.count(ENTER) == shown.count(LEAVE) == 1 and "Traceback" not in shown
    assert "\x1b[?25h" in shown  # the cursor


def test_ctrl_c_in_a_pipe(tmp_path: Path) -> None:
    a_run(tmp_path, "12.0.0")
    watch = Process(tmp_path, "12", "--watch")
    assert watch.process.stdout is not None
    watch.process.stdout.readline()
    watch.process.send_signal(signal.SIGINT)
    assert watch.end() == (130, "")

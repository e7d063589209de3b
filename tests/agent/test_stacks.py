"""Stacks of real hung processes, with and without py-spy."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, wait_until

from ft_supervisor.agent import stacks

WAITS = """
import faulthandler, os, signal, sys, threading, time
{}
def waits_for_ever():
    print("there", flush=True)
    while True: time.sleep(1000)
threading.Thread(target=waits_for_ever, name="stuck").start()
threading.Event().wait()
"""
PYTHON = sys.executable
FAULTHANDLER = "faulthandler.register(signal.SIGUSR2)"

Hung = Callable[..., tuple[int, Path]]


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Hung]:
    """Start a process that hangs. Return its pid, and the file with its output."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(setup: str = "", shell: bool = False) -> tuple[int, Path]:
        printed = tmp_path / f"printed{len(processes)}"
        (tmp_path / "waits.py").write_text(WAITS.format(setup))
        command = [PYTHON, "-S", str(tmp_path / "waits.py")]
        if shell:
            command = ["sh", "-c", f"{' '.join(command)}; true"]
        with printed.open("wb") as file:
            processes.append(subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True))
        wait_until(lambda: b"there" in printed.read_bytes(), "the process")
        return processes[-1].pid, printed

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(BOUND)


@pytest.fixture
def no_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which a py-spy would be found; there is none elsewhere."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


def since(printed: Path) -> stacks.Since:
    """Return the `since` of a rank that prints into a file."""

    def told(_local_rank: int, position: int) -> tuple[int, bytes]:
        data = printed.read_bytes()
        return len(data), data[position:]

    return told


def nothing(_local_rank: int, _position: int) -> tuple[int, bytes]:
    return 0, b""


@pytest.mark.parametrize("shell", [False, True])
def test_py_spy(shell: bool, hung: Hung, tmp_path: Path) -> None:
    pid, printed = hung(shell=shell)
    folder = tmp_path / "stacks" / "0.1"
    stacks.take({1: pid}, tmp_path, "0.1", 8, {1: "step 7"}, "SIGUSR2", since(printed))
    (path,) = folder.iterdir()
    text = path.read_text()
    assert path.name == "9.txt" and path.stat().st_mode & 0o777 == 0o600
    assert text.startswith("rank 9 (local rank 1), ") and text.splitlines()[1] == "it last said: step 7"
    assert "waits_for_ever" in text
    assert f"thread {pid} " in text and "state S (sleeping), wchan " in text
    assert text.count("== process ") == 1 + shell


def test_faulthandler(no_py_spy: Path, hung: Hung, tmp_path: Path) -> None:
    pid, printed = hung(FAULTHANDLER)
    stacks.take({0: pid}, tmp_path, "0.1", 0, {}, "SIGUSR2", since(printed))
    text = (tmp_path / "stacks" / "0.1" / "0.txt").read_text()
    assert "it last said" not in text
    assert "What it printed at SIGUSR2:" in text and "waits_for_ever" in text and "there" not in text
    os.kill(pid, 0)


def test_neither_says_what_to_do_and_sends_no_signal(no_py_spy: Path, hung: Hung, tmp_path: Path) -> None:
    pid, printed = hung("signal.signal(signal.SIGUSR1, lambda *_: None)")
    stacks.take({0: pid}, tmp_path, "0.1", 0, {}, "SIGUSR2", since(printed))
    text = (tmp_path / "stacks" / "0.1" / "0.txt").read_text()
    assert "Install py-spy, or call faulthandler.register(signal.SIGUSR2, all_threads=True)" in text
    assert f"thread {pid} " in text
    os.kill(pid, 0)


def test_a_py_spy_that_hangs_is_killed(
    no_py_spy: Path, hung: Hung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_PY_SPY", 0.5)
    mark = f"100{os.getpid()}"
    (no_py_spy / "py-spy").write_text(f"#!/bin/sh\n/bin/sleep {mark} & /bin/sleep {mark}\n")
    (no_py_spy / "py-spy").chmod(0o755)
    pid, printed = hung(FAULTHANDLER)
    stacks.take({0: pid}, tmp_path, "0.1", 0, {}, "SIGUSR2", since(printed))
    assert "waits_for_ever" in (tmp_path / "stacks" / "0.1" / "0.txt").read_text()

    def left() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if mark.encode() in path.read_bytes():
                    found.append(path.parent.name)
        return found

    wait_until(lambda: not left(), "its end")


@pytest.mark.parametrize(
    "script", ["/bin/sh\nexit 1", "/bin/sh\necho half; exit 1", "/bin/sh\nexit 0", "/no/such/file\n"]
)
def test_a_py_spy_that_may_not_look(script: str, no_py_spy: Path, hung: Hung, tmp_path: Path) -> None:
    (no_py_spy / "py-spy").write_text(f"#!{script}\n")
    (no_py_spy / "py-spy").chmod(0o755)
    pid, printed = hung(FAULTHANDLER)
    stacks.take({0: pid}, tmp_path, "0.1", 0, {}, "SIGUSR2", since(printed))
    assert "waits_for_ever" in (tmp_path / "stacks" / "0.1" / "0.txt").read_text()


def test_a_process_that_is_gone(no_py_spy: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", "exit"])
    process.wait(BOUND)
    stacks.take({0: process.pid}, tmp_path, "0.1", 0, {}, "SIGUSR2", nothing)
    assert "It is gone" in (tmp_path / "stacks" / "0.1" / "0.txt").read_text()


def test_ranks_at_the_same_time_and_one_that_hangs_us(
    no_py_spy: Path, hung: Hung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stacks, "BOUND", 3.0)
    pids = {rank: hung(FAULTHANDLER)[0] for rank in range(3)}

    def stuck(local_rank: int, _position: int) -> tuple[int, bytes]:
        if local_rank == 1:
            time.sleep(1000)
        return 0, b"stacks"

    began = time.monotonic()
    stacks.take(pids, tmp_path, "0.1", 0, {}, "SIGUSR2", stuck)
    assert time.monotonic() - began < BOUND
    assert 'event=stacks_late what="stacks of rank 1"' in capfd.readouterr().err
    done = {tmp_path / "stacks" / "0.1" / "0.txt", tmp_path / "stacks" / "0.1" / "2.txt"}
    wait_until(lambda: set((tmp_path / "stacks" / "0.1").glob("*.txt")) == done, "the others")


def test_a_folder_that_cannot_be(hung: Hung, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stacks").touch()
    pid, printed = hung()
    stacks.take({0: pid}, tmp_path, "0.1", 0, {}, "SIGUSR2", since(printed))
    assert 'event=file_failed what="stacks of rank 0" error="FileExistsError' in capfd.readouterr().err

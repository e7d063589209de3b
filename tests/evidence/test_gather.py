"""Evidence of real hung processes, by each of its sources."""

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

from ft_supervisor.agent.stack_files import StackFiles
from ft_supervisor.core.protocol.evidence import Digest, EvidenceSource
from ft_supervisor.evidence import gather, printed, py_spy
from ft_supervisor.evidence.gather import Gathering, Worker

WAITS = """
import faulthandler, os, signal, sys, threading, time
{}
def main_waits():
    frame, names = sys._current_frames()[threading.main_thread().ident], []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return "wait" in names and "start" not in names
def waits_for_ever():
    while not main_waits(): time.sleep(0.01)
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


def since(path: Path) -> printed.Since:
    """Return the `since` of a rank that prints into a file."""

    def told(position: int) -> tuple[int, bytes]:
        data = path.read_bytes()
        return len(data), data[position:]

    return told


def take(folder: Path, *workers: Worker) -> tuple[Digest, ...]:
    """Take their evidence, with their stacks in files of cycle 0.1, as an agent does."""
    files = StackFiles(folder, "0.1", len(workers))
    taken = Gathering(workers, folder / "sockets", keep=files.keep)
    wait_until(lambda: taken.wait(1.0), "the evidence")
    return taken.digests()


def text(folder: Path, rank: int = 0) -> str:
    return (folder / "stacks" / "0.1" / f"{rank}.txt").read_text()


@pytest.mark.parametrize("shell", [False, True])
def test_py_spy(shell: bool, hung: Hung, tmp_path: Path) -> None:
    pid, out = hung(shell=shell)
    (digest,) = take(tmp_path, Worker(9, 1, pid, "step 7", since=since(out)))
    told = text(tmp_path, 9)
    assert (tmp_path / "stacks" / "0.1" / "9.txt").stat().st_mode & 0o777 == 0o600
    assert told.startswith("rank 9 (local rank 1), ") and told.splitlines()[1] == "it last said: step 7"
    assert "waits_for_ever" in told
    assert f"thread {pid} " in told and "state S (sleeping), wchan " in told
    assert told.count("== process ") == 1 + shell
    assert digest.source is EvidenceSource.PY_SPY and digest.said == "step 7" and digest.local_rank == 1
    assert digest.frame.startswith("waits.py:") and digest.frame.endswith(" in <module>") and digest.stack


def test_faulthandler(no_py_spy: Path, hung: Hung, tmp_path: Path) -> None:
    pid, out = hung(FAULTHANDLER)
    (digest,) = take(tmp_path, Worker(0, 0, pid, since=since(out)))
    told = text(tmp_path)
    assert "it last said" not in told
    assert "What it printed at SIGUSR2:" in told and "waits_for_ever" in told and "there" not in told
    assert digest.source is EvidenceSource.FAULTHANDLER and digest.frame.startswith("waits.py:")
    os.kill(pid, 0)


def test_py_spy_and_faulthandler_tell_the_same(
    hung: Hung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_py_spy: Path
) -> None:
    pid, out = hung(FAULTHANDLER)
    (printed_,) = take(tmp_path, Worker(0, 0, pid, since=since(out)))
    monkeypatch.undo()
    (spied,) = take(tmp_path, Worker(0, 0, pid, since=since(out)))
    assert (printed_.source, spied.source) == (EvidenceSource.FAULTHANDLER, EvidenceSource.PY_SPY)
    assert printed_.stack == spied.stack and printed_.frame == spied.frame


def test_neither_says_what_to_do_and_sends_no_signal(no_py_spy: Path, hung: Hung, tmp_path: Path) -> None:
    pid, out = hung("signal.signal(signal.SIGUSR1, lambda *_: None)")
    (digest,) = take(tmp_path, Worker(0, 0, pid, since=since(out)))
    assert "Install py-spy, or call faulthandler.register(signal.SIGUSR2, all_threads=True)" in text(tmp_path)
    assert f"thread {pid} " in text(tmp_path)
    assert digest == Digest(0, source=EvidenceSource.PROC)
    os.kill(pid, 0)


def test_a_process_that_is_stopped_is_in_a_place_of_its_own(hung: Hung, tmp_path: Path) -> None:
    (running, out), (stopped, _) = hung(), hung()
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: "State:\tT" in Path(f"/proc/{stopped}/status").read_text(), "the stop")
    one, other = take(tmp_path, Worker(0, 0, running, since=since(out)), Worker(1, 1, stopped, since=since(out)))
    assert other.frame == f"{one.frame}, stopped by a signal" and "waits.py" in one.frame
    assert one.stack and other.stack and one.stack != other.stack
    assert "State:\tT" in Path(f"/proc/{stopped}/status").read_text()


def test_a_py_spy_that_hangs_is_killed(
    no_py_spy: Path, hung: Hung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(py_spy, "BOUND", 0.5)
    mark = f"100{os.getpid()}"
    (no_py_spy / "py-spy").write_text(f"#!/bin/sh\n/bin/sleep {mark} & /bin/sleep {mark}\n")
    (no_py_spy / "py-spy").chmod(0o755)
    pid, out = hung(FAULTHANDLER)
    take(tmp_path, Worker(0, 0, pid, since=since(out)))
    assert "waits_for_ever" in text(tmp_path)

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
    pid, out = hung(FAULTHANDLER)
    take(tmp_path, Worker(0, 0, pid, since=since(out)))
    assert "waits_for_ever" in text(tmp_path)


def test_a_process_that_is_gone(no_py_spy: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", "exit"])
    process.wait(BOUND)
    assert take(tmp_path, Worker(0, 0, process.pid)) == (Digest(0),)
    assert "It is gone" in text(tmp_path)


def test_ranks_at_the_same_time_and_one_that_hangs_us(
    no_py_spy: Path, hung: Hung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "BOUND", 2.0)

    def stuck(_position: int) -> tuple[int, bytes]:
        time.sleep(1000)
        return 0, b""

    pids = [hung(FAULTHANDLER) for _ in range(3)]
    workers = [
        Worker(rank, rank, pid, since=stuck if rank == 1 else since(out)) for rank, (pid, out) in enumerate(pids)
    ]
    began = time.monotonic()
    first, hangs, last = take(tmp_path, *workers)
    assert time.monotonic() - began < BOUND
    assert {first.source, last.source} == {EvidenceSource.FAULTHANDLER} and first.stack == last.stack
    assert hangs.source is EvidenceSource.PROC  # known by then
    wait_until(
        lambda: {path.name for path in (tmp_path / "stacks" / "0.1").glob("*.txt")} == {"0.txt", "2.txt"}, "others"
    )


def test_a_folder_that_cannot_be(hung: Hung, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stacks").touch()
    pid, out = hung()
    (digest,) = take(tmp_path, Worker(0, 0, pid, since=since(out)))
    assert digest.stack
    assert 'event=file_failed what="stacks of rank 0" error="FileExistsError' in capfd.readouterr().err

"""`ft-supervisor logs`: which worker's output it prints, and how it follows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.runs import BOUND, a_run, end
from tests.cli.test_report import runs
from tests.history.recordings import recorded

from ft_supervisor.report import failed_logs

pytestmark = pytest.mark.usefixtures("no_slurm")


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = a_run(tmp_path / "ft-runs/12", "12.0.0")
    for cycle in ("0.0", "0.1"):
        for rank in (0, 1, 2):
            put(folder, f"{cycle}/rank{rank}.log", f"rank {rank} of cycle {cycle}\n")
    return folder


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ((), "rank 0 of cycle 0.1\n"),
        (("--rank", "2"), "rank 2 of cycle 0.1\n"),
        (("--rank", "1", "--cycle", "0.0"), "rank 1 of cycle 0.0\n"),
    ],
)
def test_one_worker(command: Command, folder: Path, words: tuple[str, ...], printed: str) -> None:
    done = command("logs", "12", *words)
    assert (done.returncode, done.stdout) == (0, printed)
    assert done.stderr.startswith("==> ") and str(folder) in done.stderr


def test_parts_that_were_moved_away_come_first(command: Command, folder: Path) -> None:
    put(folder, "0.1/rank0.log.2", "oldest\n")
    put(folder, "0.1/rank0.log.1", "older\n")
    assert command("logs", "12").stdout == "oldest\nolder\nrank 0 of cycle 0.1\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("12", "--rank", "7"), 3, "cycle 0.1 has no output of rank 7; it has some of ranks 0-2"),
        (("12", "--cycle", "9.9"), 3, "no output of cycle 9.9; it has 0.0, 0.1"),
        (("12", "--cycle", "../.."), 3, "no output of cycle ../..; it has"),
        (("13",), 3, "no run of 13 in "),
        (("x",), 2, "is no job"),
        (("12", "--failed", "-f"), 2, "--failed and -f"),
    ],
)
def test_what_is_not_there(command: Command, folder: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = command("logs", *words)
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr, done


def test_a_run_without_output(command: Command, tmp_path: Path) -> None:
    a_run(tmp_path / "ft-runs/14", "14.0.0")
    done = command("logs", "14")
    assert done.returncode == 3 and "no worker has printed anything yet" in done.stderr


def test_the_workers_that_failed_first(command: Command, tmp_path: Path) -> None:
    runs(tmp_path, "crash")
    done = command("logs", "4242", "--failed", "--run-dir", ".")
    head, *lines = done.stdout.splitlines()
    assert done.returncode == 0 and head.startswith("== cycle 0.0: ") and head.endswith("(logs/0.0/rank1.log)")
    assert lines == (tmp_path / "4242.0.0/logs/0.0/rank1.log").read_text().splitlines()[-40:] and lines
    assert "cycle 0.1 has not failed" in command("logs", "4242", "--failed", "--cycle", "0.1", "--run-dir", ".").stdout


def test_the_worker_that_the_report_blames_and_not_a_peer_that_failed_before(tmp_path: Path) -> None:
    cycle = recorded("crash").cycles[0]
    assert cycle.first is not None and cycle.first.rank == 1
    peer = replace(cycle.failures[0], infra_rank=0, rank=0, message="Connection reset by peer", time=1.0)
    for rank in (0, 1):
        put(tmp_path, f"{cycle.number}/rank{rank}.log", f"of rank {rank}\n")
    (found,) = failed_logs.of_cycles([replace(cycle, failures=(peer, *cycle.failures))], tmp_path)
    assert (found.rank, found.lines) == (1, ("of rank 1",))
    (unknown,) = failed_logs.of_cycles([replace(cycle, first=None)], tmp_path)
    assert (unknown.rank, unknown.lines) == (None, ())


# -- followed


class Follower:
    """The command with -f in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ft_supervisor", "logs", "12", "-f", "--run-dir", str(folder.parent), *words],
            env={
                "PYTHONPATH": os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part),
                "PATH": "/nothing",
                "PYTHONUNBUFFERED": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def rest(self) -> tuple[int, str]:
        """Return the exit code, and what it still prints."""
        out, _ = self.process.communicate(timeout=BOUND)
        return self.process.returncode, out


def test_it_goes_on_in_the_next_cycle_and_ends_with_the_job(folder: Path) -> None:
    follower = Follower(folder)
    assert follower.line() == "rank 0 of cycle 0.1\n"
    put(folder, "0.1/rank0.log", "more\n")
    assert follower.line() == "more\n"
    path = put(folder, "0.1/rank0.log", "the last\n")
    path.replace(path.with_name("rank0.log.1"))
    put(folder, "0.1/rank0.log", "after it was moved\n")
    put(folder, "1.2/rank0.log", "in the next cycle\n")
    assert [follower.line() for _ in range(3)] == ["the last\n", "after it was moved\n", "in the next cycle\n"]
    put(folder, "1.2/rank0.log", "done\n")
    end(folder)
    assert follower.rest() == (0, "done\n")


def test_one_cycle_is_followed_to_its_end(folder: Path) -> None:
    follower = Follower(folder, "--cycle", "0.1")
    assert follower.line() == "rank 0 of cycle 0.1\n"
    put(folder, "1.2/rank0.log", "in the next cycle\n")
    assert follower.rest() == (0, "")


def test_ctrl_c_is_quiet(folder: Path) -> None:
    follower = Follower(folder)
    assert follower.line() == "rank 0 of cycle 0.1\n"
    follower.process.send_signal(signal.SIGINT)
    _, error = follower.process.communicate(timeout=BOUND)
    assert follower.process.returncode == 130 and "Traceback" not in error


def test_a_reader_that_goes_away_ends_it(folder: Path) -> None:
    follower = Follower(folder)
    assert follower.line() == "rank 0 of cycle 0.1\n"
    assert follower.process.stdout is not None
    follower.process.stdout.close()
    until = time.monotonic() + BOUND
    while follower.process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert follower.process.returncode == 0
    assert follower.process.stderr is not None
    follower.process.stderr.close()

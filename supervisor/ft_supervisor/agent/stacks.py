"""Writes where workers hang: their stacks, by py-spy where it is installed, else by a signal at which faulthandler
prints them (faulthandler.register in the training script), and the kernel's data on their threads.

All of it may hang with the workers, or with the file system, so each rank has a thread of its own that can be
abandoned.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ft_supervisor.process import atomic
from ft_supervisor.process.background import Background, wait_all
from ft_supervisor.process.log import file_failed, log
from ft_supervisor.process.tree import descendants
from ft_supervisor.run_folder import ownfolder

BOUND = 10.0
"""Seconds for the stacks of all ranks."""
_ASKING = 8.0
"""Seconds of BOUND in which processes are examined; the rest is for writing."""
_PY_SPY = 3.0
"""Seconds for one run of py-spy."""
_PRINTING = 1.0
"""Seconds for a process to print its stacks."""
_DESCENDANTS = 4
_THREADS = 64
_TEXT = 1 << 20
"""Bytes kept of py-spy's output on a process."""

Since = Callable[[int, int], tuple[int, bytes]]
"""output.Output.since."""


@dataclass(frozen=True)
class _Rank:
    """One hung worker, how its stacks are taken, and until when (monotonic clock)."""

    rank: int
    local_rank: int
    pid: int
    said: str
    signal_name: str
    since: Since
    until: float


def take(
    pids: Mapping[int, int],
    run_folder: Path,
    cycle: str,
    first_rank: int,
    said: Mapping[int, str],
    signal_name: str,
    since: Since,
) -> None:
    """Write the stacks of hung workers to `run_folder`/stacks/`cycle`/RANK.txt, within BOUND seconds. Log failures.

    `pids`, and `said`, the workers' last STATUS=, are by local rank; `first_rank` is the rank of local rank 0.
    `signal_name`, as in "SIGUSR2", is sent only to processes that catch it. `since` returns a rank's later output.
    """
    began = time.monotonic()
    pieces = []
    for local_rank, pid in pids.items():
        rank = _Rank(
            first_rank + local_rank, local_rank, pid, said.get(local_rank, ""), signal_name, since, began + _ASKING
        )
        pieces.append(
            Background(f"stacks of rank {rank.rank}", partial(_take_one, rank, run_folder, cycle), file_failed)
        )
    for late in wait_all(pieces, began + BOUND - time.monotonic()):
        log("stacks_late", "warning", what=late)


def _take_one(rank: _Rank, run_folder: Path, cycle: str) -> None:
    head = f"rank {rank.rank} (local rank {rank.local_rank}), {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if rank.said:
        head += f"\nit last said: {rank.said}"
    text = "\n\n".join([head, *(_process(pid, rank) for pid in [rank.pid, *_python_below(rank.pid)])])
    path = ownfolder.make(run_folder, "stacks", cycle) / f"{rank.rank}.txt"
    atomic.replace(path, f"{text}\n".encode(errors="replace"), 0o600)
    log("stacks_taken", "debug", rank=rank.rank, path=path)


def _python_below(pid: int) -> list[int]:
    """Return a few Python processes below this one: a shell's Python, the workers of a data loader."""
    found = []
    for child, (state, name) in sorted(descendants(pid).items()):
        with suppress(OSError):  # no permission, or just ended: then the name in proc(5) counts
            name = Path(f"/proc/{child}/exe").readlink().name
        if state != "Z" and name.startswith("python"):
            found.append(child)
    return found[:_DESCENDANTS]


def _process(pid: int, rank: _Rank) -> str:
    told = _by_py_spy(pid, rank.until)
    if told is None:
        told = _by_signal(pid, rank)
    return f"== process {pid}\n{told.strip()}\n\n{_by_kernel(pid)}"


def _by_py_spy(pid: int, until: float) -> str | None:
    """Return py-spy's output; None where it is not installed, or fails. It does not stop the process first, as that may
    never stop."""
    path = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if path is None:
        return None
    for options in (["--nonblocking"], []):
        bound = min(_PY_SPY, until - time.monotonic())
        told = _run([path, "dump", "--pid", str(pid), *options], bound) if bound > 0 else None
        if told is not None:
            return told
    return None


def _run(command: list[str], bound: float) -> str | None:
    """Return the command's output; None if it fails or is late."""
    # workers.py, which ends everything below the agent, may reap it: then its output is known, but not its exit code.
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=null, stdout=pipe, stderr=null, start_new_session=True)
    except OSError:  # a program for another architecture, for example
        return None
    try:
        data, _ = process.communicate(timeout=bound)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_PRINTING)
        return None
    return data[:_TEXT].decode(errors="replace") if process.returncode == 0 and data else None


def _by_signal(pid: int, rank: _Rank) -> str:
    name = rank.signal_name
    number = signal.Signals[name]
    if not _catches(pid, number):
        return (
            f"No stacks: no py-spy that may look at this process, and it does not catch {name}. "
            f"Install py-spy, or call faulthandler.register(signal.{name}, all_threads=True) in the training script."
        )
    position, _ = rank.since(rank.local_rank, sys.maxsize)
    try:
        os.kill(pid, number)
    except OSError as error:
        return f"No stacks: {name} can't be sent: {error}"
    time.sleep(max(0.0, min(_PRINTING, rank.until - time.monotonic())))
    _, printed = rank.since(rank.local_rank, position)
    return f"What it printed at {name}:\n{printed.decode(errors='replace') or '(nothing)'}"


def _catches(pid: int, number: int) -> bool:
    """Return whether the process catches this signal (SigCgt in proc(5))."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _by_kernel(pid: int) -> str:
    """Return the data of proc(5) on the process's threads, without files whose reading waits for the process's memory
    map."""
    try:
        threads = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name))
    except OSError as error:
        return f"It is gone: {error}"
    lines = [_thread(path) for path in threads[:_THREADS]]
    if len(threads) > _THREADS:
        lines.append(f"and {len(threads) - _THREADS} more threads")
    return "\n".join(lines)


def _thread(path: Path) -> str:
    states = [line for line in _read(path / "status").splitlines() if line.startswith("State:")]
    state = " ".join(states[0].split()[1:]) if states else "?"
    comm, wchan, syscall = (_read(path / name).strip() or "?" for name in ("comm", "wchan", "syscall"))
    return f"thread {path.name} {comm}: state {state}, wchan {wchan}, syscall {syscall}"


def _read(path: Path) -> str:
    """Return at most 4,096 bytes of the file; "" if it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(4096).decode(errors="replace")
    except OSError:
        return ""

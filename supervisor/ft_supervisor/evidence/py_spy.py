"""Stacks by py-spy, where it is installed and may read the process's memory. It does not stop the process first, as
that may never stop; only if that fails it does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.evidence import stack

BOUND = 1.2
"""Seconds for one run of py-spy."""
_ENDING = 0.3
_MOST = 4 << 20
"""Bytes of its output."""


@dataclass(frozen=True)
class Dump:
    """A process's stacks: as text for people, and the main thread's frames."""

    text: str
    frames: tuple[stack.Frame, ...]


def dump(pid: int, until: float, *, pausing: bool = True) -> Dump | None:
    """Return the stacks; None where py-spy is not installed, fails, or is late (monotonic clock). `pausing`: whether
    the process may be paused for some milliseconds where it cannot be read while it runs."""
    path = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if path is None:
        return None
    for options in (["--nonblocking"], []) if pausing else (["--nonblocking"],):
        bound = min(BOUND, until - time.monotonic())
        command = [path, "dump", "--json", "--full-filenames", "--pid", str(pid), *options]
        told = _run(command, bound) if bound > 0 else None
        if told is not None and (threads := stack.threads(told)):
            return Dump("\n\n".join(_text(thread) for thread in threads), stack.by_py_spy(told, pid))
    return None


def _text(thread: dict[str, object]) -> str:
    frames = thread["frames"]
    assert isinstance(frames, list)
    marks = ["active" if thread.get("active") else "idle", *(["holds the GIL"] if thread.get("owns_gil") else [])]
    head = f'Thread {thread.get("os_thread_id", "?")} ({", ".join(marks)}): "{thread.get("thread_name") or "?"}"'
    return "\n".join([head, *(f"    {frame['name']} ({frame['filename']}:{frame['line']})" for frame in frames)])


def _run(command: list[str], bound: float) -> str | None:
    """Return the command's output; None if it fails or is late."""
    # the agent, which ends everything below it, may reap it: then its output is known, but not its exit code
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
            process.communicate(timeout=_ENDING)
        return None
    return data[:_MOST].decode(errors="replace") if process.returncode == 0 and data else None

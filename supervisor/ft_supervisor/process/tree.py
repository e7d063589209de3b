"""Finds the processes below one of ours, kills them all, and reaps orphans. The facts are from proc(5)."""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ft_supervisor.process.prctl import become_subreaper

__all__ = [
    "Process",
    "become_subreaper",
    "descendants",
    "kill_group",
    "living",
    "pdeath_command",
    "reap_orphans",
    "scan",
    "stat",
    "strike",
    "sweep",
]

_PIDFDS = 256
"""Pidfds that are open at once, at most: a daemon may have only 1,024 file descriptors."""
_BLIND_PAUSE = 0.05
"""Seconds between two looks at /proc while it cannot be read."""
_NOT_THERE = {errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM}
"""Errors of reading a process that has ended. The latter two: of another user's process, where /proc hides those
(hidepid)."""


class Process(NamedTuple):
    """The state of a process at one moment. `dead`: all its threads have ended (a zombie)."""

    parent: int
    state: str
    name: str
    start: int
    """Clock ticks after boot. Together with the pid it identifies one process for ever."""
    dead: bool


def descendants(pid: int) -> dict[int, tuple[str, str]]:
    """Return pid -> (state letter, name) of every process below `pid`, zombies included, by one scan of /proc.

    Those whose parents have died are found only below a subreaper.
    """
    return {child: (process.state, process.name) for child, process in _below(pid).items()}


def sweep(root: int, keep: Collection[int] = (), bound: float = 5.0) -> list[int]:
    """SIGKILL every descendant of `root`, except those in `keep` and below them, until none lives.

    Returns the pids still alive after `bound` seconds (in uninterruptible sleep, or of another user). Zombies count as
    dead. No other process is killed, even if a pid is used again meanwhile. Raises OSError when /proc cannot be read
    until `bound` is over, for example for lack of file descriptors: then it is unknown which processes are left.
    """
    deadline = time.monotonic() + bound
    while True:
        try:
            if not (victims := living(root, keep)):
                return []
            _kill_all(victims, deadline)
            if time.monotonic() >= deadline:
                return sorted(living(root, keep))
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_BLIND_PAUSE)


def strike(root: int, keep: Collection[int], still: Callable[[], bool]) -> bool:
    """Scan once for living descendants of `root`, except those in `keep` and below them. If `still()` holds after the
    scan, send SIGKILL to each. Return whether there were any. A process that comes to be below `root` after the scan is
    not killed."""
    victims = living(root, keep)
    if not victims or not still():
        return False
    for pid, process in victims.items():
        fd = _kill(pid, process.start)
        if fd is not None:
            os.close(fd)
    return True


def kill_group(pid: int) -> None:
    """SIGKILL to the process group that `pid` leads, and to `pid`, which may have left it. `pid` must be a child that
    has not been reaped."""
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def reap_orphans(known: Collection[int]) -> list[int]:
    """Reap this process's dead children that are not in `known`, for which another thread waits. Return their pids."""
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return []  # a scan takes tens of milliseconds on a big machine
    except ChildProcessError:
        return []
    reaped = []
    for pid, process in scan().items():
        if process.parent == os.getpid() and process.dead and pid not in known:
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    reaped.append(pid)
            except ChildProcessError:
                continue
    return reaped


def pdeath_command(command: Sequence[str]) -> list[str]:
    """Wrap `command` so that it gets SIGKILL when the thread that forks it ends.

    setpriv costs 1 ms; our own wrapper, for util-linux before 2.33, costs 22 ms. If the parent dies while setpriv
    starts, the signal is missed: a process that can outlive the parent has to sweep. The process that forks has to call
    this.
    """
    setpriv = _setpriv()
    if setpriv is not None:
        return [setpriv, "--pdeathsig", "KILL", "--", *command]
    return own_pdeath_command(command)


def own_pdeath_command(command: Sequence[str]) -> list[str]:
    """Wrap `command` in our own wrapper, which also notices a parent that has died before."""
    wrapper = Path(__file__).with_name("prctl.py")
    return [sys.executable, "-I", "-S", str(wrapper), str(os.getpid()), *command]


@cache
def _setpriv() -> str | None:
    path = shutil.which("setpriv")
    if path is None:
        return None
    try:
        help_text = subprocess.run([path, "--help"], capture_output=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if b"--pdeathsig" in help_text else None


def _below(root: int, keep: Collection[int] = (), processes: Mapping[int, Process] | None = None) -> dict[int, Process]:
    processes = scan() if processes is None else processes
    children = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    found: dict[int, Process] = {}
    todo = [root]
    while todo:
        for pid in children[todo.pop()]:
            if pid not in found and pid not in keep:
                found[pid] = processes[pid]
                todo.append(pid)
    return found


def living(root: int, keep: Collection[int] = (), processes: Mapping[int, Process] | None = None) -> dict[int, Process]:
    """Return the processes below `root` that live, except those in `keep` and below them. `processes`: of a scan; None
    for a new one, which raises OSError."""
    return {pid: process for pid, process in _below(root, keep, processes).items() if not process.dead}


def scan() -> dict[int, Process]:
    """Return all processes that /proc shows, by pid. Raises OSError when it cannot be read."""
    found = {int(name): stat(int(name)) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208 - faster
    return {pid: process for pid, process in found.items() if process is not None}


def stat(pid: int) -> Process | None:
    """Return one process; None when there is no such process (any more). Raises OSError when that cannot be read, for
    example without a file descriptor."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return None
    # the name is in parentheses and may hold any character
    name = text[text.index("(") + 1 : text.rindex(")")]
    state, parent, *rest = text[text.rindex(")") + 2 :].split()
    threads, start = int(rest[15]), int(rest[17])
    # a first thread that has ended is a zombie as well, while others of the process go on
    return Process(int(parent), state, name, start, dead=state in "ZX" and threads <= 1)


def _kill_all(victims: Mapping[int, Process], deadline: float) -> None:
    """Send SIGKILL to all, and wait for their ends. Raises OSError."""
    pidfds: list[int] = []
    try:
        for pid, process in victims.items():
            fd = _kill(pid, process.start)
            if fd is not None and len(pidfds) < _PIDFDS:
                pidfds.append(fd)
            elif fd is not None:
                os.close(fd)
        _wait(pidfds, deadline)
    finally:
        for fd in pidfds:
            os.close(fd)


def _kill(pid: int, start: int) -> int | None:
    """Send SIGKILL to the process that began at `start`. Return a pidfd that becomes readable at its end; None when
    there is none."""
    fd: int | None = None
    try:
        # none before Linux 5.3, nor in a Python built for older ones: a pid used again within microseconds is then hit
        fd = os.pidfd_open(pid) if hasattr(signal, "pidfd_send_signal") else None
    except ProcessLookupError:
        return None
    except OSError:
        fd = None
    same = False
    try:
        process = stat(pid)
        same = process is not None and process.start == start
    finally:
        if fd is not None and not same:
            os.close(fd)
    if not same:
        return None
    try:
        if fd is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # a process that is gone needs no signal; another user's is still there at the end, and reported
    return fd


def _wait(pidfds: Sequence[int], deadline: float) -> None:
    """Wait until all these have ended, or the deadline. Without any, wait a moment."""
    if not pidfds:
        time.sleep(0.01)
        return
    poll = select.poll()
    for fd in pidfds:
        poll.register(fd, select.POLLIN)
    left = len(pidfds)
    while left and (wait := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(wait * 1000):
            poll.unregister(fd)
            left -= 1

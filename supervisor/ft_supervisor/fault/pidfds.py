"""Processes that are held by pidfds: a signal to one can hit nobody else, even if its pid is used again."""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Iterable

from ft_supervisor.process import tree

STOP_BOUND = 5.0
"""Seconds until everything below a process has to stand still."""
_STILL = "TtZXD"
"""States (proc_pid_stat(5)) in which a process does nothing: stopped, dead, or in the kernel until that lets it go."""


class Grip:
    """`close` lets go."""

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}
        _raise_file_limit()

    @property
    def pids(self) -> tuple[int, ...]:
        """Those that are held, living or not."""
        return tuple(self._fds)

    def take(self, pid: int, start: int | None = None) -> bool:
        """Whether it is held now: a living process of our uid, and, if `start` (clock ticks after boot) is given, the
        one that began then."""
        if pid in self._fds:
            return True
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        # Looked at after the pidfd was there: what is seen is what is held, or what is held is dead.
        process = tree.stat(pid)
        ours = process is not None and not process.dead and start in (None, process.start) and _uid(pid) == os.getuid()
        if not ours:
            os.close(fd)
            return False
        self._fds[pid] = fd
        return True

    def send(self, number: signal.Signals) -> tuple[int, ...]:
        """The pids of those that got it, which are those that live."""
        reached = []
        for pid, fd in self._fds.items():
            try:
                signal.pidfd_send_signal(fd, number)
                reached.append(pid)
            except (ProcessLookupError, PermissionError):
                continue
        return tuple(reached)

    def stop_below(self, root: int) -> None:
        """SIGSTOP to this process, which is held already, and to all that is below it, until nothing new comes.

        Returns after STOP_BOUND whatever still moves.
        """
        deadline = time.monotonic() + STOP_BOUND
        sent: set[int] = set()
        while time.monotonic() < deadline:
            below = {pid: state for pid, (state, _) in tree.descendants(root).items() if state != "Z"}
            new = [pid for pid in (root, *below) if pid not in sent and self.take(pid)]
            for pid in new:
                self._stop(pid)
            sent.update(new)
            if not new and all(state in _STILL for state in below.values()):
                return
            time.sleep(0.001)

    def wait_still(self) -> None:
        """Until none of them does anything. Returns after STOP_BOUND whatever still moves."""
        deadline = time.monotonic() + STOP_BOUND
        while not all((process := tree.stat(pid)) is None or process.state in _STILL for pid in self._fds):
            if time.monotonic() >= deadline:
                return
            time.sleep(0.001)

    def wait_gone(self, bound: float) -> tuple[int, ...]:
        """Those that still live after so many seconds."""
        deadline = time.monotonic() + bound
        living = dict(self._fds)
        while living:
            poll = select.poll()
            for fd in living.values():
                poll.register(fd, select.POLLIN)
            gone = {fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)}
            living = {pid: fd for pid, fd in living.items() if fd not in gone}
            if time.monotonic() >= deadline:
                break
        return tuple(living)

    def close(self) -> None:
        """Let go of all."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _stop(self, pid: int) -> None:
        try:
            signal.pidfd_send_signal(self._fds[pid], signal.SIGSTOP)
        except (ProcessLookupError, PermissionError):
            return


def stopped(pids: Iterable[int]) -> list[int]:
    """Those of them that somebody has stopped."""
    return [pid for pid in pids if (process := tree.stat(pid)) and process.state in "Tt"]


def _uid(pid: int) -> int | None:
    """The owner: root for what may not be looked at by others (proc(5), dumpable)."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

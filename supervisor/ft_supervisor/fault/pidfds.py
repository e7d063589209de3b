"""Processes held by pidfds: a signal cannot hit another process, even if the pid is used again."""

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


class Pidfds:
    """A set of held processes; `close` releases them."""

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}
        _raise_file_limit()

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of the held processes, living or dead."""
        return tuple(self._fds)

    def take(self, pid: int, start: int | None = None) -> bool:
        """Hold a living process of our uid; with `start` (clock ticks after boot), only the one that began then.

        Returns whether it is held now.
        """
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
        """Send a signal to all. Returns the pids of the living ones, which got it."""
        reached = []
        for pid, fd in self._fds.items():
            try:
                signal.pidfd_send_signal(fd, number)
                reached.append(pid)
            except (ProcessLookupError, PermissionError):
                continue
        return tuple(reached)

    def stop_below(self, root: int) -> None:
        """Stop this process, which is held already, and all below it, until no new process appears.

        Returns after STOP_BOUND at the latest.
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
        """Wait until all stand still, STOP_BOUND at most."""
        deadline = time.monotonic() + STOP_BOUND
        while not all((process := tree.stat(pid)) is None or process.state in _STILL for pid in self._fds):
            if time.monotonic() >= deadline:
                return
            time.sleep(0.001)

    def wait_gone(self, bound: float) -> tuple[int, ...]:
        """Wait until all are gone, `bound` seconds at most. Returns the pids of those that still live."""
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
        """Release all."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _stop(self, pid: int) -> None:
        try:
            signal.pidfd_send_signal(self._fds[pid], signal.SIGSTOP)
        except (ProcessLookupError, PermissionError):
            return


def stopped(pids: Iterable[int]) -> list[int]:
    """Return those of the pids that are stopped."""
    return [pid for pid in pids if (process := tree.stat(pid)) and process.state in "Tt"]


def _uid(pid: int) -> int | None:
    """Return the owner; root for a process that others may not inspect (proc(5), dumpable)."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

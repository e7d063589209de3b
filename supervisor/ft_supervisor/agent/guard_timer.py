"""The agent's side of the guard (process.guard), which ends workers without a lease though agent and daemon are frozen.

The agent makes a timer of the kernel (timerfd_create(2), CLOCK_BOOTTIME) and hands it down. Each proof of the lease
moves its end for both processes: so the guard sleeps until the current end, no proof wakes it, and it asks no process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping

from ft_supervisor.process import clock
from ft_supervisor.process.log import log

PAUSE = 2.0
"""Seconds between two starts of a guard, at least: one that cannot run here must not cost the node a core."""
_CLOCK_BOOTTIME = time.CLOCK_BOOTTIME
_TFD_TIMER_ABSTIME = 1
_TFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_LATEST = 1e9
"""Seconds: more than any machine runs, and less than the kernel refuses."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """A timerfd that more than one process may hold; Python has none of its own before 3.13. Raises OSError."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._checked(self._libc.timerfd_create(_CLOCK_BOOTTIME, _TFD_FLAGS))

    def set(self, at: float | None) -> None:
        """Make the timer readable from then on (process.clock); None: not at all. A former setting is replaced."""
        value = _Timespec()
        if at is not None:  # all zero would mean never, and times before the machine's boot are refused
            value.seconds, value.nanoseconds = int(min(max(at, 0.0), _LATEST)), max(1, int(at % 1 * 1e9))
        setting = ctypes.byref(_Itimerspec(_Timespec(), value))
        self._checked(self._libc.timerfd_settime(self.fd, _TFD_TIMER_ABSTIME, setting, None))

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd: {os.strerror(number)}")
        return result


class Guard:
    """The agent's side. For the main thread, as the guard dies with the thread that starts it.

    `environ`: the guard's environment. It must have PATH, or its process could be taken for a worker.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._pid: int | None = None
        self._end: float | None = None
        self._failed = False
        self._again_at = 0.0
        self._timer: Timer | None = None

    @property
    def pids(self) -> Collection[int]:
        """Return the processes that a sweep of the workers must spare."""
        return () if self._pid is None else (self._pid,)

    def set(self, end: float | None) -> None:
        """Let no worker live after `end` (process.clock); None: until further notice. Costs some microseconds."""
        if end != self._end and self._timer is not None:
            self._timer.set(end)
        self._end = end

    def keep(self) -> None:
        """Start the guard, also in place of one that has died. Call it at least every heartbeat.

        Where the start fails, the agent and its daemon guard the fence alone, and the next call tries again.
        """
        if self._pid is not None:
            status = _ended(self._pid)
            if status is None:
                return
            self._pid = None
            log("guard_lost", level="warning", status=status)
        if clock.now() < self._again_at:
            return
        self._again_at = clock.now() + PAUSE
        try:
            self._start()
            self._failed = False
        except OSError as error:
            if not self._failed:
                log("guard_failed", level="warning", error=str(error))
            self._failed = True

    def _start(self) -> None:
        if self._timer is None:
            self._timer = Timer()
            self._timer.set(self._end)
        command = [sys.executable, "-P", "-m", "ft_supervisor.process.guard", str(os.getpid())]
        # As its standard input: an inheritable descriptor would also go to another process that is started just now.
        moves = [(os.POSIX_SPAWN_DUP2, self._timer.fd, 0)]
        # A blocked signal stays blocked: signals of Slurm and terminals to all of a task do nothing to it.
        blocked = signal.valid_signals()
        self._pid = os.posix_spawn(command[0], command, self._environ, file_actions=moves, setsigmask=blocked)


def _ended(pid: int) -> str | None:
    """Return how this child of ours has ended; None while it lives."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return "unknown"
    return str(os.waitstatus_to_exitcode(status)) if found else None

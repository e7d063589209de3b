"""The process that runs one health check, for the daemon: `main` with NAME TIMEOUT RETRIES UNCHECKED COMMAND...

It is a subreaper, so that all processes of the check stay below it, daemons included, and none outlives an attempt. It
writes one CheckOutcome to the socket that is its stdin, and leaves. When the other end is closed, by the daemon or by
its death, it ends with all below it. UNCHECKED is the exit code of a command that could not look, "-" if there is none.

While a process lives that it cannot kill (one that waits for a dead NFS server) it stays, and has written an empty
line: the stuck process remains below a pid that the daemon knows.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.health_types import KILL_TIME, PAUSE, CheckOutcome, Result
from ft_supervisor.core.words import one_line, plain
from ft_supervisor.daemon.signals import Signals
from ft_supervisor.process import tree
from ft_supervisor.process.prctl import die_with_parent
from ft_supervisor.process.signals import describe_exit

KEPT = 4096
"""Bytes of a check's output that are kept: the last ones."""
_PIECE = 2**16
_LOOK_PAUSE = 5.0
"""Seconds between two attempts to kill a stuck process."""


class _DaemonGone(Exception):
    """The daemon is gone, or has closed its end: the result is not wanted any more."""


class _Tried(NamedTuple):
    """How an attempt ended: the exit code (of a signal: negative; None: timed out), and why it failed, "" if not."""

    code: int | None
    reason: str
    stuck: Collection[int]
    """The pids that could not be killed."""
    printed: str = ""
    """The last line that the command has printed."""


def main() -> NoReturn:
    """Run one check in a process of its own, started by `daemon.checks`. Never returns."""
    name, timeout, retries, unchecked, *command = sys.argv[1:]
    signals = Signals()
    daemon = socket.socket(fileno=0)
    tree.become_subreaper()
    try:
        tried, attempts = _examine(command, float(timeout), int(retries), signals, daemon)
        result, reason = Result.FAILED if tried.reason else Result.PASSED, tried.reason
        if str(tried.code) == unchecked:
            result, reason = Result.UNCHECKED, tried.printed or reason
        said = codec.encode(CheckOutcome(name, result, reason, attempts)) + b"\n"
        daemon.sendall(said + b"\n" * bool(tried.stuck), socket.MSG_NOSIGNAL)
        if tried.stuck:
            _stay(signals, daemon)
    except (_DaemonGone, ConnectionError):
        tree.sweep(os.getpid(), (), KILL_TIME)
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _examine(
    command: Sequence[str], timeout: float, retries: int, signals: Signals, daemon: socket.socket
) -> tuple[_Tried, int]:
    attempts = 0
    while True:
        attempts += 1
        try:
            tried = _Attempt(command, timeout).result(signals, daemon)
        except OSError as error:  # the limit of processes is reached, for example
            tried = _Tried(None, f"cannot be run: {error.strerror}", ())
        if not tried.reason or tried.stuck or attempts > retries:
            return tried, attempts
        until = time.monotonic() + PAUSE
        while time.monotonic() < until:
            _wait((), until, signals, daemon)


def _stay(signals: Signals, daemon: socket.socket) -> None:
    """Stay until the stuck processes have ended."""
    while tree.sweep(os.getpid(), (), 0.0):
        _wait((), time.monotonic() + _LOOK_PAUSE, signals, daemon)
        _reap()


def _wait(fds: Collection[int], until: float, signals: Signals, daemon: socket.socket) -> None:
    """Wait for one of these file descriptors, a signal, or the time. Raises _DaemonGone."""
    poll = select.poll()
    for fd in (*fds, signals.fileno(), daemon.fileno()):
        poll.register(fd, select.POLLIN)
    ready = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
    signals.take()
    if daemon.fileno() in ready:  # the daemon never writes: its end is closed
        raise _DaemonGone


def _reap() -> dict[int, int]:
    """Reap all ended processes below this one. Returns their exit codes by pid."""
    codes = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            codes[found[0]] = os.waitstatus_to_exitcode(found[1])
    return codes


class _Attempt:
    """One start of the command, in a session of its own. Its output is read to the end; its last KEPT bytes stay."""

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._until = time.monotonic() + timeout
        self._timeout = timeout
        self._tail = bytearray()
        self._code: int | None = None
        output, theirs = os.pipe()
        self._failure, says = os.pipe()
        self._output: int | None = output
        parent = os.getpid()
        self._pid = os.fork()  # there is one thread here
        if not self._pid:
            _become(command, parent, theirs, says)
        for fd in (theirs, says):
            os.close(fd)
        for fd in (output, self._failure):
            os.set_blocking(fd, False)

    def result(self, signals: Signals, daemon: socket.socket) -> _Tried:
        """Wait for its end, or end it. No process of it that can be killed is left afterwards."""
        while self._code is None and time.monotonic() < self._until:
            _wait(() if self._output is None else (self._output,), self._until, signals, daemon)
            self._read()
            self._code = _reap().get(self._pid)
        stuck = tree.sweep(os.getpid(), (), KILL_TIME)
        _reap()
        self._read()
        reason = self._reason()
        if stuck:
            reason += f"; cannot be killed: {_names(stuck)}"
        for fd in (self._failure, self._output):
            if fd is not None:
                os.close(fd)
        return _Tried(self._code, reason, stuck, last_line(bytes(self._tail)))

    def _read(self) -> None:
        """Read the output that is there now; a flood of it does not block."""
        for _ in range(64):
            if self._output is None:
                return
            try:
                data = os.read(self._output, _PIECE)
            except BlockingIOError:
                return
            self._tail = (self._tail + data)[-KEPT:]
            if not data:
                os.close(self._output)
                self._output = None

    def _reason(self) -> str:
        with suppress(BlockingIOError):
            if failure := os.read(self._failure, _PIECE):
                return f"cannot be run: {failure.decode(errors='replace')}"
        if self._code == 0:
            return ""
        how = f"timed out after {self._timeout:g} s" if self._code is None else describe_exit(self._code)
        last = last_line(bytes(self._tail))
        return f"{how}: {last}" if last else how


def last_line(output: bytes) -> str:
    """Return the last line that is not blank, without characters that cannot be printed."""
    text = output.decode(errors="replace")
    for line in reversed(text.splitlines()):
        words = one_line(plain(line), 300)
        if words:
            return words
    return ""


def _names(pids: Collection[int]) -> str:
    return ", ".join(f"pid {pid}" for pid in sorted(pids)[:5])


def _become(command: Sequence[str], parent: int, output: int, failure: int) -> NoReturn:
    """In the new process: become the command, or write into `failure` why that failed."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and ignoring is inherited
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # Slurm sends these to every process of a step, for workers
            signal.signal(number, signal.SIG_IGN)
        if die_with_parent(parent):
            os.execvp(command[0], list(command))
    except OSError as error:
        os.write(failure, f"{command[0]}: {error.strerror}".encode(errors="replace"))
    finally:
        os._exit(127)

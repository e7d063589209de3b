"""Signals that end a process, and a start that keeps them from ending it before it has handlers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

_FAULTS = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
}
_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
_STOPPING = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}

TERMINATING = frozenset(
    signal.valid_signals() - {signal.SIGKILL} - _FAULTS - _HARMLESS - _STOPPING - _IGNORED_BY_PYTHON
)
"""Signals that end a process without a handler (signal(7)), except those that its own errors cause: TERM, INT, HUP,
QUIT, USR1, USR2, ALRM, XCPU, IO, the real-time ones and others."""


def describe_exit(code: int) -> str:
    """Return "exit code 3", or "killed by SIGKILL" for a negative code (os.waitstatus_to_exitcode)."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-code}"


def nothing(number: int, frame: FrameType | None) -> None:
    """Do nothing. A handler instead of SIG_IGN, which children would inherit through exec."""


def heeded(numbers: Iterable[int]) -> list[int]:
    """Return those signals that this process was not started to ignore: nohup ignores SIGHUP, and a shell without job
    control SIGQUIT for background commands. SIGINT, which such a shell ignores too, is always included."""
    kept = {number for number in (signal.SIGHUP, signal.SIGQUIT) if signal.getsignal(number) is signal.SIG_IGN}
    return [number for number in numbers if number not in kept]


def name(number: int) -> str:
    """Return a signal's name, such as SIGTERM; "signal 40" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def held() -> Iterator[None]:
    """Keep TERMINATING signals pending for this thread, until `release` or the end of the block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATING)
    try:
        yield
    finally:
        release()


def release() -> None:
    """Unblock the signals that were kept pending since `held` or `spawn`. Call it when the handlers are set."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATING)


def spawn(command: Sequence[str], environ: Mapping[str, str], file_actions: Sequence[Any] = ()) -> int:
    """Start a process by posix_spawn that keeps TERMINATING signals pending until it calls `release`; return its pid.

    Otherwise a signal to all processes of a task ends a child that is still importing, with a traceback for SIGINT.
    Raises OSError, ValueError.
    """
    return os.posix_spawn(
        command[0],
        list(command),
        environ,
        file_actions=file_actions,
        setsigmask=TERMINATING,
        setsigdef=_IGNORED_BY_PYTHON,  # being ignored is inherited
    )

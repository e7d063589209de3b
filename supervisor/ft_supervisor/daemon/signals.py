"""Signals as a file descriptor to poll: the handlers do nothing, and stay installed to the daemon's last moment."""

from __future__ import annotations

import signal
import socket
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Slurm and terminals signal every process of a task; for the daemon these mean nothing.
UNHEEDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


class Signals:
    """From here on no signal but SIGKILL, SIGSTOP and the like of SIGSEGV does anything to this process."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        for number in (*ENDING, *UNHEEDED, signal.SIGCHLD):
            signal.signal(number, _nothing)

    def fileno(self) -> int:
        """Readable when a signal has come, SIGCHLD included."""
        return self._read.fileno()

    def take(self) -> list[str]:
        """Names of the signals that ask for the node's end, in the order in which they came."""
        names: list[str] = []
        while True:
            try:
                numbers = self._read.recv(4096)
            except BlockingIOError:
                return names
            names += [signal.Signals(number).name for number in numbers if number in ENDING]


def _nothing(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which children would inherit."""

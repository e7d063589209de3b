"""Signals as a file descriptor to poll: the handlers do nothing, and stay installed to the daemon's last moment."""

from __future__ import annotations

import signal
import socket

from ft_supervisor.process import signals

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that ask for the node's end. Slurm and terminals signal every process of a task; others are ignored."""


class Signals:
    """Lets no signal end this process but SIGKILL and those of its own faults, such as SIGSEGV. Signals that were kept
    pending until now (process.signals) arrive now."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        self._ending = signals.heeded(ENDING)
        for number in (*signals.TERMINATING, signal.SIGCONT, signal.SIGCHLD):
            signal.signal(number, signals.nothing)
        signals.release()

    def fileno(self) -> int:
        """Readable when a signal has come, SIGCHLD included."""
        return self._read.fileno()

    def take(self) -> list[str]:
        """Return the names of the signals that ask for the node's end, in the order of their arrival."""
        names: list[str] = []
        while True:
            try:
                numbers = self._read.recv(4096)
            except BlockingIOError:
                return names
            names += [signal.Signals(number).name for number in numbers if number in self._ending]

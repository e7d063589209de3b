"""The daemon's two children: starting them, hearing them, ending them with everything below them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ft_supervisor.core.events import ChildExited, DaemonEvent, Ordered
from ft_supervisor.core.orders import Begin, Order
from ft_supervisor.process import tree
from ft_supervisor.process.link import LINK_FD_ENV, Link, LinkClosed, pair
from ft_supervisor.process.log import log

AGENT, COORDINATOR = "agent", "coordinator"
# -P: a user's folder that holds a queue.py must not stop us.
COMMANDS: Mapping[str, Sequence[str]] = {
    AGENT: (sys.executable, "-P", "-m", "ft_supervisor.agent"),
    COORDINATOR: (sys.executable, "-P", "-m", "ft_supervisor.coordinator"),
}
SWEEP_PIECE = 0.2
"""Seconds that one sweep may keep the daemon's loop."""


@dataclass
class _Child:
    name: str
    pid: int
    link: Link | None
    status: str | None = None
    """How it ended; None while it lives."""


class Children:
    """At most one child of each name. The caller polls `filenos` and then asks `collect` what happened."""

    def __init__(self, commands: Mapping[str, Sequence[str]] = COMMANDS) -> None:
        self._commands = commands
        self._children: dict[str, _Child] = {}
        self._stillborn: list[DaemonEvent] = []

    @property
    def busy(self) -> bool:
        """Whether there is something to collect that no file descriptor will tell of."""
        return bool(self._stillborn) or any(child.status is not None for child in self._children.values())

    def filenos(self) -> list[int]:
        """What to poll for reading, besides SIGCHLD."""
        return [child.link.fileno() for child in self._children.values() if child.link is not None]

    def spawn(self, name: str, begin: Begin) -> None:
        """Start the child, and tell it who it is. ChildExited follows, also when it cannot be started.

        Only from the main thread: the child's parent death signal fires when the thread that forked it ends.
        """
        if name in self._children:
            raise RuntimeError(f"there is a {name} already")
        ours, theirs = pair()
        try:
            os.set_inheritable(theirs.fileno(), True)
            command = list(self._commands[name])
            environ = {**os.environ, LINK_FD_ENV: str(theirs.fileno())}
            # Python ignores these two, and ignoring is inherited.
            defaults = [signal.SIGPIPE, signal.SIGXFSZ]
            pid = os.posix_spawn(command[0], command, environ, setsigdef=defaults)
        except OSError as error:
            ours.close()
            self._stillborn.append(ChildExited(name, f"cannot be started: {error}"))
            return
        finally:
            theirs.close()
        child = self._children[name] = _Child(name, pid, Link(ours))
        log("started", child=name, pid=pid, incarnation=begin.incarnation if name == AGENT else None)
        self._send(child, begin)

    def tell(self, name: str, order: Order) -> None:
        """Dropped when there is no such child, or it no longer listens: its exit is on the way."""
        if child := self._children.get(name):
            self._send(child, order)

    def kill(self, name: str) -> None:
        """SIGKILL. ChildExited follows once everything below it is gone too."""
        child = self._children.get(name)
        if child is not None and child.status is None:
            os.kill(child.pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own

    def collect(self) -> list[DaemonEvent]:
        """What the children have said, and who is gone: a child's last words come before its exit."""
        events, self._stillborn = self._stillborn, []
        for child in list(self._children.values()):
            if child.status is None:
                child.status = _exit_status(child.pid)  # asked before the link is read to its end
            events += self._heard(child)
            if child.status is not None and self._swept(child):
                del self._children[child.name]
                if child.link is not None:
                    child.link.close()
                events.append(ChildExited(child.name, child.status))
        tree.reap_orphans(self._living())
        return events

    def end(self, bound: float) -> Collection[int]:
        """SIGKILL to everything below this process; the pids that still live after `bound` seconds."""
        left = tree.sweep(os.getpid(), (), bound)
        for child in self._children.values():
            if child.status is None:
                child.status = _exit_status(child.pid)
        tree.reap_orphans(self._living())
        return left

    def _living(self) -> list[int]:
        return [child.pid for child in self._children.values() if child.status is None]

    def _swept(self, child: _Child) -> bool:
        # Only agents have anything below them. Sweeping for a coordinator would hit what the agent's workers started.
        if child.name != AGENT:
            return True
        return not tree.sweep(os.getpid(), self._living(), SWEEP_PIECE)

    def _heard(self, child: _Child) -> list[DaemonEvent]:
        if child.link is None:
            return []
        events: list[DaemonEvent] = []
        try:
            events += [Ordered(child.name, order) for order in child.link.drain()]
        except LinkClosed as error:
            self._unlink(child, error)
        return events

    def _send(self, child: _Child, order: Order) -> None:
        if child.link is None:
            return
        try:
            child.link.send(order)
        except LinkClosed as error:
            self._unlink(child, error)

    def _unlink(self, child: _Child, error: LinkClosed) -> None:
        """A child that does not listen is of no use: it ends, and the machine hears of its exit."""
        if child.link is not None:
            child.link.close()
            child.link = None
        if child.status is None:
            log("link_lost", "warning", child=child.name, pid=child.pid, error=str(error))
            self.kill(child.name)


def _exit_status(pid: int) -> str | None:
    """How a child of ours ended, reaping it; None while it lives."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return None
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-code}"

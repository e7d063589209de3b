"""Starts the daemon's two children, reads their links, and ends them with everything below them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ft_supervisor.core.daemon.daemon import AGENT, COORDINATOR
from ft_supervisor.core.protocol.events import ChildExited, DaemonEvent, Ordered
from ft_supervisor.core.protocol.orders import Begin, Order
from ft_supervisor.process import signals, tree
from ft_supervisor.process.link import LINK_FD_ENV, Link, LinkClosed, pair
from ft_supervisor.process.log import log

# -P: a user's folder that holds a queue.py must not stop us.
COMMANDS: Mapping[str, Sequence[str]] = {
    AGENT: (sys.executable, "-P", "-m", "ft_supervisor.agent"),
    COORDINATOR: (sys.executable, "-P", "-m", "ft_supervisor.coordinator"),
}
DEAF_BOUND = 1.0
"""Seconds from the end of a child's link to its SIGKILL."""
SWEEP_PIECE = 0.2
"""Seconds that one sweep may keep the daemon's loop."""


@dataclass
class _Child:
    name: str
    pid: int
    link: Link | None
    status: str | None = None
    """How it ended; None while it lives."""
    deaf_since: float | None = None
    unswept: bool = False
    """Whether the log has the line that its leftovers cannot be looked for."""


class Children:
    """At most one child of each name. The caller polls `filenos` and then asks `collect` what happened.

    `others`: children of this process that are not to be touched here: those that run health checks.

    `end` may be called from another thread, one that has failed: the main thread then starts no child any more.
    """

    def __init__(
        self, commands: Mapping[str, Sequence[str]] = COMMANDS, others: Callable[[], Collection[int]] = tuple
    ) -> None:
        self._commands = commands
        self._others = others
        self._children: dict[str, _Child] = {}
        self._stillborn: list[DaemonEvent] = []
        self._lock = threading.Lock()
        self._ended = False

    @property
    def busy(self) -> bool:
        """Whether `collect` has something to return that no file descriptor announces."""
        return bool(self._stillborn) or any(child.status is not None for child in self._children.values())

    def filenos(self) -> list[int]:
        """Return the file descriptors to poll for reading, besides SIGCHLD."""
        return [child.link.fileno() for child in self._children.values() if child.link is not None]

    def spawn(self, name: str, begin: Begin) -> None:
        """Start the child and send it `begin`. ChildExited follows, also when it cannot be started.

        Only from the main thread: the child's parent death signal fires when the thread that forked it ends.
        """
        with self._lock:
            if not self._ended:
                self._spawn(name, begin)

    def _spawn(self, name: str, begin: Begin) -> None:
        if name in self._children:
            raise RuntimeError(f"there is a {name} already")
        try:
            pid, link = self._start(name)
        except OSError as error:  # no file descriptor, process or memory to be had: the machine tries again later
            self._stillborn.append(ChildExited(name, f"cannot be started: {error}"))
            return
        child = self._children[name] = _Child(name, pid, link)
        log("started", "debug", child=name, pid=pid, incarnation=begin.incarnation)
        self._send(child, begin)

    def _start(self, name: str) -> tuple[int, Link]:
        """Return its pid and our end of its link. Raises OSError."""
        ours, theirs = pair()
        with theirs:
            link = Link(ours)  # writes its first line while the other end is certainly open
            try:
                os.set_inheritable(theirs.fileno(), True)
                environ = {**os.environ, LINK_FD_ENV: str(theirs.fileno())}
                return signals.spawn(self._commands[name], environ), link
            except OSError:
                link.close()
                raise

    def tell(self, name: str, order: Order) -> None:
        """Send an order. It is dropped without such a child, or when its link has ended: its exit is on the way."""
        if child := self._children.get(name):
            self._send(child, order)

    def kill(self, name: str) -> None:
        """Send SIGKILL. ChildExited follows once everything below the child is gone, too."""
        child = self._children.get(name)
        if child is not None and child.status is None:
            os.kill(child.pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own

    def collect(self) -> list[DaemonEvent]:
        """Return the orders of the children, and the exits. A child's last orders come before its exit.

        Returns nothing after `end`.
        """
        with self._lock:
            return [] if self._ended else self._collect()

    def _collect(self) -> list[DaemonEvent]:
        events, self._stillborn = self._stillborn, []
        for child in list(self._children.values()):
            if child.status is None:
                child.status = _exit_status(child.pid)  # asked before the link is read to its end
                self._kill_if_deaf(child)
            events += self._heard(child)
            if child.status is not None and self._swept(child):
                del self._children[child.name]
                if child.link is not None:
                    child.link.close()
                events.append(ChildExited(child.name, child.status))
        self._reap_orphans()
        return events

    def end(self, bound: float) -> Collection[int]:
        """Kill everything below this process, and return the pids that still live after `bound` seconds.

        Where they cannot be looked for, at least agent and coordinator are killed, and their workers with them. No
        child is started after it.
        """
        locked = self._lock.acquire(timeout=bound)  # the other thread may hang in a start or a sweep
        self._ended = True
        try:
            return self._end(bound)
        finally:
            if locked:
                self._lock.release()

    def _end(self, bound: float) -> Collection[int]:
        left: Collection[int] = ()
        try:
            left = tree.sweep(os.getpid(), (), bound)
        except OSError as error:
            log("cannot_sweep", "error", reason=str(error))
            for name in self._children:
                self.kill(name)
        for child in self._children.values():
            if child.status is None:
                child.status = _exit_status(child.pid)
        self._reap_orphans()
        return left

    def _reap_orphans(self) -> None:
        """Reap the orphans that this subreaper has inherited, without a look at /proc, which costs milliseconds."""
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid in self._living():
                    return  # one of ours, just now; its SIGCHLD is on the way
                os.waitpid(found.si_pid, os.WNOHANG)

    def _living(self) -> list[int]:
        return [*(child.pid for child in self._children.values() if child.status is None), *self._others()]

    def _swept(self, child: _Child) -> bool:
        # Only agents have anything below them. Sweeping for a coordinator would hit what the agent's workers started.
        if child.name != AGENT:
            return True
        try:
            return not tree.sweep(os.getpid(), self._living(), SWEEP_PIECE)
        except OSError as error:
            if not child.unswept:
                child.unswept = True
                log("cannot_sweep", "error", reason=str(error))
            return False  # tried again until it can: no agent runs workers beside what may be left

    def _heard(self, child: _Child) -> list[DaemonEvent]:
        if child.link is None:
            return []
        try:
            return [Ordered(child.name, order) for order in child.link.drain()]
        except LinkClosed:
            child.link.close()
            child.link = None
            child.deaf_since = time.monotonic()
            return []

    def _kill_if_deaf(self, child: _Child) -> None:
        """Kill a child whose link has ended, DEAF_BOUND later: a link ends at every exit, too."""
        if child.deaf_since is not None and time.monotonic() - child.deaf_since >= DEAF_BOUND:
            log("link_lost", "warning", child=child.name, pid=child.pid)
            child.deaf_since = None
            self.kill(child.name)

    def _send(self, child: _Child, order: Order) -> None:
        if child.link is not None:
            # A lost link is noticed by the next drain, after what the child had said before.
            with suppress(LinkClosed):
                child.link.send(order)


def _exit_status(pid: int) -> str | None:
    """Reap a child and return how it ended; None while it lives."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return None
    return signals.describe_exit(os.waitstatus_to_exitcode(status))

"""The one connection between this process and its agent: JSON objects over a Unix socket of sequenced packets."""

from __future__ import annotations

import json
import os
import queue
import select
import socket
import threading
import warnings
from collections.abc import Callable
from typing import Any

from .leaving import LEAVING

SOCKET = "FT_SUPERVISOR_SOCKET"
OWN_THREADS = "ft-supervisor"
"""Prefix of the names of this package's threads."""
_LONGEST = 65536
"""Bytes of a message."""
_AGAIN = 1000
"""Milliseconds until a function that has not been left is interrupted again."""


class Agent:
    """The connection. A thread reads it; any thread may send. Raises OSError where the agent cannot be reached."""

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()
        self.cycle = ""  # the newest that the agent has sent; messages about others are dropped
        self.on_abort: Callable[[], object] = bool
        self._gone = False
        self._awaited: tuple[str, ...] = ()  # the kinds of message for which the main thread waits
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect("\0" + name[1:] if name.startswith("@") else name)
        except OSError:
            self._socket.close()
            raise
        self.send("hello", version=1, pid=self.pid, kind="restartable")
        threading.Thread(target=self._read, daemon=True, name=OWN_THREADS).start()

    def usable(self) -> bool:
        """Return whether there is an agent; False once it is gone, and in a forked child."""
        return not self._gone and os.getpid() == self.pid

    def send(self, type: str, /, **fields: Any) -> None:
        """Send a message, if there is an agent."""
        if self.usable():
            try:
                self._socket.send(json.dumps({"type": type, **fields}, ensure_ascii=False).encode(errors="replace"))
            except OSError:
                self._gone = True

    def expect(self, *kinds: str) -> None:
        """Note that the main thread only waits for such a message from now on. Without an agent none will come: a
        process that waits for `run` ends then, and any other one gets the message `gone`."""
        self._awaited = kinds
        if self._gone:
            self._give_up()

    def _give_up(self) -> None:
        if "run" in self._awaited:
            os._exit(1)
        self._inbox.put({"type": "gone", "cycle": self.cycle})

    def wait(self, *kinds: str) -> dict[str, Any]:
        """Return the next message of these kinds. There is no bound: the agent decides how long the process lives."""
        self.expect(*kinds)
        while (message := self._inbox.get())["type"] not in kinds or message["cycle"] != self.cycle:
            pass
        self._awaited = ()
        return message

    def close(self) -> None:
        """Close this process's descriptor. For a forked child."""
        self._socket.close()

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            if not poll.poll(_AGAIN if LEAVING.due and LEAVING.inside else None):
                LEAVING.interrupt()  # Restart was swallowed, or raised where Python drops exceptions
                continue
            try:
                data = self._socket.recv(_LONGEST)
            except ConnectionError:
                data = b""
            if not data:
                self._gone = True
                self._give_up()
                return
            self._receive(json.loads(data))

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "leave":
            os._exit(0)
        elif kind in ("run", "release") and kind not in self._awaited:
            pass
        elif kind == "run":
            self.cycle = message["cycle"]  # here: an abort of this cycle may follow before the main thread is awake
            LEAVING.begin()
            self._inbox.put(message)
        elif kind in ("abort", "release") and message["cycle"] == self.cycle:
            if kind == "abort":
                LEAVING.due = True
                self.on_abort()
            self._inbox.put(message)


_agent: Agent | None = None


def expected() -> bool:
    """Return whether this process has an agent that takes connections, or had one."""
    return _agent is not None or SOCKET in os.environ


def connected() -> Agent | None:
    """Return the connection, which the first call makes; None where there is no agent. For the main thread."""
    global _agent
    name = os.environ.pop(SOCKET, None)  # a child that inherits it would introduce itself as this worker
    if name is not None and _agent is None:
        LEAVING.install()
        try:
            _agent = Agent(name)
        except OSError as error:
            warnings.warn(f"not restartable, no agent at {name}: {error}", RuntimeWarning, stacklevel=4)
    return _agent if _agent is not None and _agent.usable() else None


def _in_forked_child() -> None:
    """Forget the agent and the function, which are the parent's."""
    global _agent
    if _agent is not None:
        _agent.close()
        _agent = None
    LEAVING.forked()
    os.environ.pop(SOCKET, None)


os.register_at_fork(after_in_child=_in_forked_child)

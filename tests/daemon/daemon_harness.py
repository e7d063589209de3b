"""A real daemon whose children are small scripts of the test's own: what `start_daemon` returns."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ft_supervisor.core.protocol.model import Job

BOUND = 60.0

DAEMON = """
import json, sys
from ft_supervisor.core.protocol import codec, orders
from ft_supervisor.core.daemon import daemon, last_deed, verdict_search
from ft_supervisor.daemon import batch, children, files, shell
from ft_supervisor.process.log_lines import make_line
{before}
begin = codec.decode(sys.argv[1].encode(), [orders.Begin])
shell.supervise(
    begin.job,
    begin.node,
    notes=[make_line("a_note")],
    commands=json.loads(sys.argv[2]),
    batch_job={batch_host!r} and batch.BatchJob(7, 0, 0, {batch_host!r}),
)
"""

# What all children begin with. `say` writes to the daemon's stderr, where the test reads it.
CHILD = """
import os, signal, subprocess, sys, time
from ft_supervisor.core.protocol.model import Cycle, Memory, Outcome, Verdict
from ft_supervisor.core.protocol.orders import Alive, VerdictDecided, Done, Listening, Remember, Terminate
from ft_supervisor.process.child import enter_child

link = enter_child()
begin = link.receive(60)
folder = begin.job.local_folder

def say(text):
    os.write(2, f"CHILD {text}\\n".encode())

def live(until=Terminate):
    while True:
        link.send(Alive("active"))
        order = link.receive(0.1)
        if isinstance(order, until):
            return order

def done(outcome, reason, orders=()):
    verdict = Verdict(outcome, reason)
    link.send(Done(verdict.exit_code, verdict, reason))
    os._exit(verdict.exit_code)

def leave_children(new_session_and_orphan=True):
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    session = subprocess.Popen(sleep, start_new_session=True)
    between = subprocess.Popen(
        ["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", *sleep], stdout=subprocess.PIPE, start_new_session=True
    )
    return session.pid, int(between.communicate()[0])
"""


_LAST_LINES = 5.0
"""Seconds for what a daemon that is gone has written."""


@dataclass
class Daemon:
    """A daemon in a session of its own, and what it and its children have written to stderr."""

    process: subprocess.Popen[str]
    job: Job
    lines: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ended: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        self._ended.set()

    def wait_for(self, text: str) -> str:
        """The first line with `text` in it."""

        def find() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self._changed:
            found = self._changed.wait_for(find, BOUND)
        assert found, f"{text!r} did not come:\n{''.join(self.lines)}"
        return found

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what no line tells of."""
        deadline = time.monotonic() + BOUND
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come:\n{''.join(self.lines)}"
            time.sleep(0.01)

    def said(self, text: str) -> list[str]:
        """The words behind `text` in a line of a child's."""
        return self.wait_for(f"CHILD {text}").split(text, 1)[1].split()

    def exit_code(self) -> int:
        """Once it is gone, and what it has written is in `lines`, unless a process that it left holds the pipe."""
        code = self.process.wait(BOUND)
        self._ended.wait(_LAST_LINES)
        return code


StartDaemon = Callable[..., Daemon]

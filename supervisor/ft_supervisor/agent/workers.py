"""Starting, watching and stopping this node's workers, without ever blocking the main loop for long.

    running   -> failures: WorkersExited with them, each once; all exited: sweep, WorkersExited without any
    stopping  -> SIGTERM, then at the deadline, or once all have exited: sweep, WorkersGone

A sweep ends everything below this process, however deep: the agent is a child subreaper, so that what a worker has
double-forked is still below it.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from ft_supervisor.agent.failures import NOT_EXECUTABLE, look_up
from ft_supervisor.agent.node_agent import NodeAgent
from ft_supervisor.agent.witness import Witness
from ft_supervisor.core.events import AgentEvent, WorkersExited, WorkersGone
from ft_supervisor.core.messages import Run
from ft_supervisor.core.model import Cycle, Failure, Job, Node
from ft_supervisor.process.log import log
from ft_supervisor.process.ports import free_port
from ft_supervisor.process.tree import reap_orphans, sweep

_PIECE = 0.1
"""Seconds that one attempt to end everything may take, and between two of them."""
_LOOK_UP = 0.5
_FILES, _FILES_OF_WORKER = 128, 8
"""File descriptors: of an agent without workers, with some to spare, and for each worker while it is started."""


@dataclass
class _Stopping:
    cycle: Cycle
    deadline: float
    signalled: bool = False


class Workers:
    """For the main thread. `wake` is called from another thread whenever a worker has exited: call `poll` then.

    `witness` knows more of them.
    """

    def __init__(self, job: Job, node: Node, wake: Callable[[], None]) -> None:
        self._job = job
        self.witness = Witness(job, node)
        self._agent = NodeAgent(job)
        self._wake = wake
        self._run: Run | None = None
        self._live: dict[int, subprocess.Popen[bytes]] = {}
        self._pidfds: dict[int, int] = {}
        self._failures: list[Failure] = []
        self._stopping: _Stopping | None = None
        self._retry_at: float | None = None
        self._warned = False
        self._epoll = select.epoll()
        _make_room(job.per_node)
        threading.Thread(target=self._watch, daemon=True, name="worker exits").start()

    @property
    def due(self) -> float | None:
        """When `poll` is to be called though nobody wakes: seconds of the monotonic clock, or None."""
        if self._retry_at is not None:
            return self._retry_at
        return self._stopping.deadline if self._stopping else None

    def start(self, run: Run) -> None:
        """Start the workers of `run`. What goes wrong is reported as a failure of worker 0 by `poll`."""
        if self._run is not None:
            raise RuntimeError(f"workers of cycle {self._run.cycle} may still be there")
        self._run = run
        if (failure := self._cannot_start()) is not None:
            self._failures.append(failure)
            return
        try:
            handlers = self._agent.start(run, self.witness.open(run))
        except OSError as error:
            self.witness.started({})
            self._failures.append(self.witness.failure(0, NOT_EXECUTABLE, None, f"can't start: {error}"))
            return
        for local_rank, handler in handlers.items():
            process = self._live[local_rank] = handler.proc
            self._pidfds[local_rank] = os.pidfd_open(process.pid)
            self._epoll.register(self._pidfds[local_rank], select.EPOLLIN | select.EPOLLONESHOT)
        self.witness.started(self.pids())

    def stop(self, cycle: Cycle, grace: float, signal_name: str, now: float) -> None:
        """See actions.StopWorkers."""
        if self._stopping is None:
            self._stopping = _Stopping(cycle, now + grace)
        stopping = self._stopping
        stopping.cycle, stopping.deadline = cycle, min(stopping.deadline, now + grace)
        if signal_name and not stopping.signalled:
            stopping.signalled = True
            for process in self._live.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.Signals[signal_name])

    def poll(self, now: float) -> list[AgentEvent]:
        """What has become of the workers since the last call. Takes at most about 0.1 s."""
        self._collect()
        if self._stopping is not None:
            if (self._live and now < self._stopping.deadline) or not self._swept():
                return []
            if (port := self._port()) is None:
                return []
            cycle, self._stopping = self._stopping.cycle, None
            self._forget()
            return [WorkersGone(cycle, port)]
        if self._run is None:
            return []
        cycle = self._run.cycle
        if self._failures:
            failures, self._failures = tuple(self._failures), []
            self._retry_at = None if self._live else now  # nobody wakes after the last
            return [WorkersExited(cycle, failures)]
        self._retry_at = None
        if self._live or not self._swept():
            return []
        self._forget()
        return [WorkersExited(cycle, ())]

    def pids(self) -> dict[int, int]:
        """Those that run, by local rank."""
        return {local_rank: process.pid for local_rank, process in self._live.items()}

    def _watch(self) -> None:
        while True:
            self._epoll.poll()
            self._wake()

    def _collect(self) -> None:
        for local_rank, process in list(self._live.items()):
            code = process.poll()
            if code is None:
                continue
            del self._live[local_rank]
            self.witness.exited(local_rank)
            os.close(self._pidfds.pop(local_rank))
            if code != 0 and self._stopping is None:  # or it's our own doing, and nobody is told
                self._failures.append(self.witness.failure(local_rank, code, self._agent.error_file(local_rank)))

    def _swept(self) -> bool:
        """Whether nothing is left below this process; if not, `due` says when to try again."""
        try:
            left = sweep(os.getpid(), bound=_PIECE)
            self._collect()
            reap_orphans([process.pid for process in self._live.values()])
        except OSError as error:
            if self._later():
                log("cannot_sweep", level="error", reason=str(error))
            return False
        self._retry_at = time.monotonic() + _PIECE if left or self._live else None
        if left and not self._warned:
            self._warned = True
            log("workers_left", level="warning", pids=",".join(map(str, left)))
        return self._retry_at is None

    def _port(self) -> int | None:
        """A free port for the next cycle; None, and `due` says when to ask again, where none can be looked for."""
        try:
            return free_port("", avoid=self._job.ports)
        except OSError as error:
            if self._later():
                log("no_port", level="warning", reason=str(error))
            return None

    def _later(self) -> bool:
        """Poll again soon: there may be file descriptors again then. The machine bounds how often. Whether it is the
        first time in this cycle that something is worth a line."""
        self._retry_at = time.monotonic() + _PIECE
        first, self._warned = not self._warned, True
        return first

    def _forget(self) -> None:
        self._run, self._failures, self._warned = None, [], False
        self.witness.close()
        self._agent.release()

    def _cannot_start(self) -> Failure | None:
        """A failure with a reason instead of setpriv's bare exit code; None also when the file system hangs."""
        found: SimpleQueue[tuple[int, str] | None] = SimpleQueue()
        command = self._job.command[0]
        threading.Thread(target=lambda: found.put(look_up(command)), daemon=True, name="look up").start()
        try:
            wrong = found.get(timeout=_LOOK_UP)
        except Empty:
            return None
        return None if wrong is None else self.witness.failure(0, wrong[0], None, wrong[1])


def _make_room(workers: int) -> None:
    """Where the limit of open files is too low for so many workers it is raised, for them too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_OF_WORKER * workers
    if soft < needed and soft != resource.RLIM_INFINITY:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

"""Starts, watches and stops this node's workers, without ever blocking the main loop for long.

core/agent/node_workers.py decides what is reported of them, and when to sweep. A sweep ends everything below this
process, however deep: the agent is a child subreaper, so that what a worker has double-forked is still below it.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from ft_supervisor.agent.failures import NOT_EXECUTABLE, look_up
from ft_supervisor.agent.node_agent import NodeAgent
from ft_supervisor.agent.worker_evidence import WorkerEvidence
from ft_supervisor.core.agent.node_workers import NodeWorkers, WorkersState
from ft_supervisor.core.protocol.events import AgentEvent
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Cycle, Failure, Job, Node
from ft_supervisor.process import clock
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import log
from ft_supervisor.process.ports import free_port
from ft_supervisor.process.tree import reap_orphans, sweep

_PIECE = 0.1
"""Seconds that one attempt to end everything may take, and between two of them."""
_LOOK_UP = 0.5
_FILES, _FILES_OF_WORKER = 128, 8
"""File descriptors: of an agent without workers, with some to spare, and for each worker while it is started."""


class Workers:
    """For the main thread. `wake` is called from another thread whenever a worker has exited: call `poll` then.

    `evidence` knows more of them. `others`: processes below this one that are no workers' and live on.
    """

    def __init__(
        self, job: Job, node: Node, wake: Callable[[], None], others: Callable[[], Collection[int]] = tuple
    ) -> None:
        self._job = job
        self.evidence = WorkerEvidence(job, node)
        self._agent: NodeAgent | None = None
        """Made with the first start: where its folder cannot be made, the node can still say so, and be a spare."""
        self._wake = wake
        self._others = others
        self._machine = NodeWorkers()
        self._live: dict[int, subprocess.Popen[bytes]] = {}
        self._pidfds: dict[int, int] = {}
        self._retry_at: float | None = None
        self._warned = False
        self._epoll = select.epoll()
        _make_room(job.per_node)
        threading.Thread(target=self._watch, daemon=True, name="worker exits").start()

    @property
    def due(self) -> float | None:
        """When `poll` is to be called though nobody wakes: seconds of process.clock, or None."""
        if self._retry_at is not None:
            return self._retry_at
        return self._machine.deadline

    def start(self, run: Run) -> None:
        """Start the workers of `run`. What goes wrong `poll` tells: a command that can't be run as a failure of worker
        0, all else as CannotStart. Raises InvalidState if other workers may still be there."""
        self._machine.start(run.cycle)
        try:
            failure = self._wrong_command()
            if failure is None:
                self._launch(run)
        except (OSError, MemoryError) as error:
            if isinstance(error, OSError) and error.errno == errno.E2BIG:  # the job's words, on every node the same
                failure = self.evidence.failure(0, NOT_EXECUTABLE, None, f"can't start: {error}")
            else:
                self._machine.unable(str(error) or type(error).__name__)
                self._retry_at = clock.now()  # nobody else wakes us
        if failure is not None:
            self._machine.fail(failure)

    def _launch(self, run: Run) -> None:
        """Raises OSError, MemoryError; some workers may run then, of whom only a sweep knows."""
        if self._agent is None:
            self._agent = NodeAgent(self._job)
        try:
            streams = self.evidence.open(run)
            for local_rank, env in self._agent.prepare(run).items():
                self._add(local_rank, self._agent.start(local_rank, env, streams[local_rank]))
        finally:
            self.evidence.started(self.pids())

    def _add(self, local_rank: int, process: subprocess.Popen[bytes]) -> None:
        self._pidfds[local_rank] = os.pidfd_open(process.pid)
        self._epoll.register(self._pidfds[local_rank], select.EPOLLIN | select.EPOLLONESHOT)
        self._live[local_rank] = process

    def stop(self, cycle: Cycle, grace: float, signal_name: str, now: float) -> None:
        """See actions.StopWorkers."""
        if name := self._machine.stop(cycle, grace, signal_name, now):
            for process in self._live.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.Signals[name])

    def kill(self) -> None:
        """SIGKILL to each worker and its process group, without a look at anything. What has left the group is ended by
        the sweep that follows when the workers are stopped."""
        for process in self._live.values():
            for send in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    send(process.pid, signal.SIGKILL)

    def poll(self, now: float) -> list[AgentEvent]:
        """What has become of the workers since the last call. Takes at most about 0.1 s."""
        self._collect()
        if (event := self._machine.report()) is not None:
            self._retry_at = None if self._live else now  # no exit of a worker will wake us
            return [event]
        if not self._machine.wants_sweep(now, live=bool(self._live)):
            self._retry_at = None
            return []
        if not self._swept():
            return []
        port = self._port() if self._machine.state is WorkersState.STOPPING else 0  # after a success nothing follows
        if port is None:
            return []
        self._forget()
        return [self._machine.swept(port)]

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
            self.evidence.exited(local_rank)
            os.close(self._pidfds.pop(local_rank))
            if code != 0 and self._machine.state is not WorkersState.STOPPING:  # or it is our own doing
                error_file = self._agent.error_file(local_rank) if self._agent else None
                self._machine.fail(self.evidence.failure(local_rank, code, error_file))

    def _swept(self) -> bool:
        """Whether nothing is left below this process; if not, `due` says when to try again."""
        try:
            left = sweep(os.getpid(), self._others(), bound=_PIECE)
            self._collect()
            reap_orphans([*(process.pid for process in self._live.values()), *self._others()])
        except OSError as error:
            if self._later():
                log("cannot_sweep", level="error", reason=str(error))
            return False
        self._retry_at = clock.now() + _PIECE if left or self._live else None
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
        self._retry_at = clock.now() + _PIECE
        first, self._warned = not self._warned, True
        return first

    def _forget(self) -> None:
        self._warned = False
        for pidfd in self._pidfds.values():  # of a start that got no further
            os.close(pidfd)
        self._pidfds.clear()
        self.evidence.close()
        if self._agent is not None:
            self._agent.release()

    def _wrong_command(self) -> Failure | None:
        """A failure with a reason instead of setpriv's bare exit code; None also when the file system hangs. Raises
        OSError where it is not the command's fault."""
        try:
            looking = Background("look up", partial(look_up, self._job.command[0]))
        except RuntimeError as error:  # of Thread.start, where the node has no more threads to give
            raise OSError(errno.EAGAIN, str(error)) from error
        try:
            wrong = looking.result(_LOOK_UP)
        except Hangs:
            return None
        return None if wrong is None else self.evidence.failure(0, wrong[0], None, wrong[1])


def _make_room(workers: int) -> None:
    """Where the limit of open files is too low for so many workers it is raised, for them too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_OF_WORKER * workers
    if soft < needed and soft != resource.RLIM_INFINITY:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

"""Starting, watching and stopping this node's workers, without ever blocking the main loop for long.

    running   -> a failure: WorkersExited with it; all exited with 0: sweep, WorkersExited
    stopping  -> SIGTERM, then at the deadline, or once all have exited: sweep, WorkersGone

A sweep ends everything below this process, however deep: the agent is a child subreaper, so that what a worker has
double-forked is still below it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from ft_supervisor.agent.node_agent import NodeAgent
from ft_supervisor.core.events import AgentEvent, WorkersExited, WorkersGone
from ft_supervisor.core.messages import Run
from ft_supervisor.core.model import Cycle, Failure, Job, Node, one_line
from ft_supervisor.process.log import log
from ft_supervisor.process.ports import free_port
from ft_supervisor.process.tree import reap_orphans, sweep

_PIECE = 0.1
"""Seconds that one attempt to end everything may take, and between two of them."""
_LOOK_UP = 0.5
_ERROR_FILE_LIMIT = 1 << 20
"""Bytes."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""A shell's exit codes for a command that can't be started."""


@dataclass
class _Stopping:
    cycle: Cycle
    deadline: float
    signalled: bool = False


class Workers:
    """For the main thread. `wake` is called from another thread whenever a worker has exited: call `poll` then."""

    def __init__(self, job: Job, node: Node, wake: Callable[[], None]) -> None:
        self._job = job
        self._node = node
        self._agent = NodeAgent(job)
        self._wake = wake
        self._cycle: Cycle | None = None
        self._live: dict[int, subprocess.Popen[bytes]] = {}
        self._pidfds: dict[int, int] = {}
        self._failures: list[Failure] = []
        self._reported = False
        self._stopping: _Stopping | None = None
        self._retry_at: float | None = None
        self._warned = False
        self._epoll = select.epoll()
        threading.Thread(target=self._watch, daemon=True, name="worker exits").start()

    @property
    def due(self) -> float | None:
        """When `poll` is to be called though nobody wakes: seconds of the monotonic clock, or None."""
        if self._retry_at is not None:
            return self._retry_at
        return self._stopping.deadline if self._stopping else None

    def start(self, run: Run) -> None:
        """Start the workers of `run`. What goes wrong is reported as a failure of worker 0 by `poll`."""
        if self._cycle is not None:
            raise RuntimeError(f"workers of cycle {self._cycle} may still be there")
        self._cycle, self._reported = run.cycle, False
        if (failure := self._cannot_start()) is not None:
            self._failures.append(failure)
            return
        try:
            handlers = self._agent.start(run)
        except OSError as error:
            self._failures.append(self._failure(0, NOT_EXECUTABLE, f"can't start: {error}"))
            return
        for local_rank, handler in handlers.items():
            process = self._live[local_rank] = handler.proc
            self._pidfds[local_rank] = os.pidfd_open(process.pid)
            self._epoll.register(self._pidfds[local_rank], select.EPOLLIN | select.EPOLLONESHOT)

    def stop(self, cycle: Cycle, grace: float, send_signal: bool, now: float) -> None:
        """See actions.StopWorkers."""
        if self._stopping is None:
            self._stopping = _Stopping(cycle, now + grace)
        stopping = self._stopping
        stopping.cycle, stopping.deadline = cycle, min(stopping.deadline, now + grace)
        if send_signal and not stopping.signalled:
            stopping.signalled = True
            for process in self._live.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)

    def poll(self, now: float) -> list[AgentEvent]:
        """What has become of the workers since the last call. Takes at most about 0.1 s."""
        self._collect()
        if self._stopping is not None:
            if (self._live and now < self._stopping.deadline) or not self._swept():
                return []
            cycle, self._stopping = self._stopping.cycle, None
            self._forget()
            return [WorkersGone(cycle, free_port("", avoid=self._job.ports))]
        if self._cycle is None or self._reported:
            return []
        if self._failures:
            self._reported = True
            return [WorkersExited(self._cycle, tuple(self._failures))]
        if self._live or not self._swept():
            return []
        cycle = self._cycle
        self._forget()
        return [WorkersExited(cycle, ())]

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
            os.close(self._pidfds.pop(local_rank))
            if code != 0:
                self._failures.append(self._failure(local_rank, code))

    def _swept(self) -> bool:
        """Whether nothing is left below this process; if not, `due` says when to try again."""
        left = sweep(os.getpid(), bound=_PIECE)
        self._collect()
        reap_orphans([process.pid for process in self._live.values()])
        self._retry_at = time.monotonic() + _PIECE if left or self._live else None
        if left and not self._warned:
            self._warned = True
            log("workers_left", level="warning", pids=",".join(map(str, left)))
        return self._retry_at is None

    def _forget(self) -> None:
        self._cycle, self._failures, self._warned = None, [], False
        self._agent.release()

    def _cannot_start(self) -> Failure | None:
        """A failure with a reason instead of setpriv's bare exit code; None also when the file system hangs."""
        found: SimpleQueue[tuple[int, str] | None] = SimpleQueue()
        look_up = threading.Thread(target=lambda: found.put(_look_up(self._job.command[0])), daemon=True)
        look_up.start()
        try:
            wrong = found.get(timeout=_LOOK_UP)
        except Empty:
            return None
        return None if wrong is None else self._failure(0, *wrong)

    def _failure(self, local_rank: int, code: int, message: str = "") -> Failure:
        path = self._agent.error_file(local_rank)
        told = _read_error(path) if path and not message else None
        return Failure(
            infra_rank=self._node.infra_rank,
            local_rank=local_rank,
            exit_code=code if code >= 0 else None,
            signal=_signal_name(-code) if code < 0 else None,
            error_file=str(path) if told is not None else None,
            message=one_line(message or told or ""),
            time=time.time(),
        )


def _look_up(command: str) -> tuple[int, str] | None:
    """Exit code and message for a command that can't be run; None for one that can."""
    if shutil.which(command) is not None:
        return None
    if shutil.which(command, mode=os.F_OK) is not None:
        return NOT_EXECUTABLE, f"{command}: not executable"
    return NOT_FOUND, f"{command}: command not found"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal between the first and the last has no name
        return f"signal {number}"


def _read_error(path: Path) -> str | None:
    """The message that torch's @record left (torch.distributed.elastic.multiprocessing.errors); None when there is no
    file, and what is wrong with it when it can't be read."""
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(_ERROR_FILE_LIMIT))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"unreadable error file: {error}"
    message = told.get("message", "") if isinstance(told, dict) else told
    return str(message.get("message", "") if isinstance(message, dict) else message)

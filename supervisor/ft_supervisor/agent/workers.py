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
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from ft_supervisor.agent import log_rules, stacks
from ft_supervisor.agent.failures import NOT_EXECUTABLE, Told, look_up, read_error, signal_name, was_killed
from ft_supervisor.agent.memory_kills import Counter
from ft_supervisor.agent.node_agent import NodeAgent, Outfit
from ft_supervisor.agent.notify import Beats
from ft_supervisor.agent.output import Output
from ft_supervisor.core.events import AgentEvent, Beat, WorkersExited, WorkersGone
from ft_supervisor.core.messages import Run
from ft_supervisor.core.model import Cycle, Failure, Job, Node, one_line
from ft_supervisor.core.settings import Cause, Hang
from ft_supervisor.observe.background import Background
from ft_supervisor.process.log import file_failed, log
from ft_supervisor.process.ports import free_port
from ft_supervisor.process.tree import reap_orphans, sweep

_PIECE = 0.1
"""Seconds that one attempt to end everything may take, and between two of them."""
_LOOK_UP = 0.5
_LAST_WORDS = 0.1
"""Seconds to read what a worker has printed before it died."""
_FILES, _FILES_OF_WORKER = 128, 8
"""File descriptors: of an agent without workers, with some to spare, and for each worker while it is started."""


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
        self._output = Output()
        self._beats = Beats()
        self._kills: dict[int, Counter | None] = {}
        self._exited: set[int] = set()
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
            handlers = self._agent.start(run, self._outfits())
        except OSError as error:
            self._failures.append(self._failure(0, NOT_EXECUTABLE, f"can't start: {error}"))
            return
        finally:
            self._output.started()
        for local_rank, handler in handlers.items():
            process = self._live[local_rank] = handler.proc
            self._kills[local_rank] = Counter.open(process.pid)
            self._pidfds[local_rank] = os.pidfd_open(process.pid)
            self._epoll.register(self._pidfds[local_rank], select.EPOLLIN | select.EPOLLONESHOT)
        self._beats.listen(self.pids())

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
            cycle, self._stopping = self._stopping.cycle, None
            self._forget()
            return [WorkersGone(cycle, free_port("", avoid=self._job.ports))]
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

    def beats(self) -> tuple[Beat, ...]:
        """What workers have said by the notify protocol since the last call, one a rank; those that have exited since
        then are "stopping", whatever they said."""
        beats = {beat.local_rank: beat for beat in self._beats.poll()}
        beats |= {local_rank: Beat(local_rank, "stopping") for local_rank in self._exited}
        self._exited.clear()
        return tuple(beats.values())

    def statuses(self) -> dict[int, str]:
        """What workers last said of themselves (STATUS=), by local rank; for people."""
        return self._beats.statuses()

    def rules_of(self, local_rank: int) -> tuple[int, ...]:
        """Which of the job's rules have a log pattern that this rank's last lines match, by index."""
        self._output.drain(local_rank, _LAST_WORDS)
        return log_rules.matching(self._job.settings.rules, self._output.tail(local_rank))

    def take_stacks(self, local_ranks: Collection[int]) -> Background[None] | None:
        """Begin to write where these workers are to run_folder/stacks/CYCLE/RANK.txt; done within stacks.BOUND. None if
        none of them runs."""
        hung = {local_rank: pid for local_rank, pid in self.pids().items() if local_rank in local_ranks}
        if self._run is None or not hung:
            return None
        work = partial(
            stacks.take,
            hung,
            Path(self._job.run_folder) / "stacks" / str(self._run.cycle),
            self._run.group_rank * self._job.per_node,
            (self._job.settings.hang or Hang()).signal,
            self._output.since,
        )
        return Background("stacks", work, file_failed)

    def flush(self, bound: float) -> bool:
        """Whether all that workers have printed is passed on within `bound` seconds. Before this process leaves."""
        return self._output.flush(bound)

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
            self._exited.add(local_rank)
            os.close(self._pidfds.pop(local_rank))
            if code != 0 and self._stopping is None:  # or it's our own doing, and nobody is told
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
        self._run, self._failures, self._warned = None, [], False
        self._kills.clear()
        self._exited.clear()
        self._beats.close()
        self._output.release()
        self._agent.release()

    def _outfits(self) -> dict[int, Outfit]:
        local_ranks = range(self._job.per_node)
        streams = self._output.open(local_ranks)
        sockets = self._beats.open(Path(self._job.local_folder) / "notify", local_ranks)
        hang = self._job.settings.hang
        watchdog = {"WATCHDOG_USEC": str(round(hang.after * 1e6))} if hang else {}
        return {
            local_rank: Outfit(*streams[local_rank], {"NOTIFY_SOCKET": sockets[local_rank]} | watchdog)
            for local_rank in local_ranks
        }

    def _cannot_start(self) -> Failure | None:
        """A failure with a reason instead of setpriv's bare exit code; None also when the file system hangs."""
        found: SimpleQueue[tuple[int, str] | None] = SimpleQueue()
        command = self._job.command[0]
        threading.Thread(target=lambda: found.put(look_up(command)), daemon=True, name="look up").start()
        try:
            wrong = found.get(timeout=_LOOK_UP)
        except Empty:
            return None
        return None if wrong is None else self._failure(0, *wrong)

    def _failure(self, local_rank: int, code: int, message: str = "") -> Failure:
        path = self._agent.error_file(local_rank)
        told = read_error(path) if path and not message else None
        kills = self._kills.get(local_rank)
        return Failure(
            infra_rank=self._node.infra_rank,
            local_rank=local_rank,
            exit_code=code if code >= 0 else None,
            signal=signal_name(-code) if code < 0 else None,
            error_file=str(path) if told is not None else None,
            message=one_line(message or (told or Told("")).message),
            time=time.time(),
            cause=Cause.OOM if was_killed(code) and kills is not None and kills.moved() else Cause.EXIT,
            exception=told.exception if told else "",
            rules=self.rules_of(local_rank),
        )


def _make_room(workers: int) -> None:
    """Where the limit of open files is too low for so many workers it is raised, for them too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_OF_WORKER * workers
    if soft < needed and soft != resource.RLIM_INFINITY:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

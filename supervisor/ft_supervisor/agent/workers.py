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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ft_supervisor.agent.control import Control
from ft_supervisor.agent.failures import NOT_EXECUTABLE, look_up
from ft_supervisor.agent.node_agent import NodeAgent, WorkerStreams
from ft_supervisor.agent.warm_start import SOCKET
from ft_supervisor.agent.warm_workers import WarmWorkers, warm_command
from ft_supervisor.agent.worker_evidence import WorkerEvidence
from ft_supervisor.core.agent.node_workers import NodeWorkers, WorkersState
from ft_supervisor.core.protocol.events import AgentEvent, Beat
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Cycle, Failure, Job, Node
from ft_supervisor.process import clock
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import file_failed, log
from ft_supervisor.process.ports import free_port
from ft_supervisor.process.tree import reap_orphans, sweep
from ft_supervisor.run_folder import worker_ranks

_PIECE = 0.1
"""Seconds that one attempt to end everything may take, and between two of them."""
_LOOK_UP = 0.5
_FILES, _FILES_OF_WORKER = 128, 8
"""File descriptors: of an agent without workers, with some to spare, and for each worker while it is started."""


@dataclass(frozen=True)
class _Place:
    """What one worker is started with: its environment beyond this process's and its streams'."""

    env: Mapping[str, str]
    streams: WorkerStreams


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
        self._places: dict[int, _Place] = {}
        """What the workers of the present cycle are started with, by local rank."""
        self._lasting: dict[int, dict[str, str]] = {}
        """What warm workers are started with, by local rank: the variables that are the same in all cycles."""
        self._control: Control | None = None
        self._sockets: dict[int, dict[str, str]] = {}
        """FT_SUPERVISOR_SOCKET by local rank, where there is one."""
        self._warm: WarmWorkers | None = None
        self._live: dict[int, subprocess.Popen[bytes]] = {}
        self._pidfds: dict[int, int] = {}
        self._retry_at: float | None = None
        self._warned = False
        self._epoll = select.epoll()
        _make_room(2 * job.per_node if job.preload else job.per_node)  # with the warm ones beside them
        if job.preload:
            self._keep_warm()
        threading.Thread(target=self._watch, daemon=True, name="worker exits").start()

    @property
    def due(self) -> float | None:
        """When `poll` is to be called though nobody wakes: seconds of process.clock, or None."""
        if self._retry_at is not None:
            return self._retry_at
        dues = (self._machine.deadline, self._warm.due if self._warm else None)
        return min((due for due in dues if due is not None), default=None)

    def start(self, run: Run) -> None:
        """Start the workers of `run`. What goes wrong `poll` tells: a command that can't be run as a failure of worker
        0, all else as CannotStart. Raises InvalidState if other workers may still be there."""
        self._machine.start(run.cycle)
        with self._told():
            failure = self._wrong_command()
            if failure is None:
                self._launch(run)
            else:
                self._machine.fail(failure)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Have `poll` tell what goes wrong with the start of workers."""
        try:
            yield
        except (OSError, MemoryError) as error:
            self._drop_orders()
            self.evidence.give_up()  # the sweep that follows needs file descriptors
            if isinstance(error, OSError) and error.errno == errno.E2BIG:  # the job's words, on every node the same
                self._machine.fail(self.evidence.failure(0, NOT_EXECUTABLE, None, f"can't start: {error}"))
            else:
                self._machine.unable(str(error) or type(error).__name__)
                self._retry_at = clock.now()  # nobody else wakes us

    def _launch(self, run: Run) -> None:
        """Raises OSError, MemoryError; some workers may run then."""
        now, agent = clock.now(), self._node_agent()
        streams = self.evidence.open(run)
        for local_rank, env in agent.prepare(run).items():
            self._places[local_rank] = _Place({**env, **self._sockets.get(local_rank, {})}, streams[local_rank])
        warm = {local_rank for local_rank in self._places if self._take_warm(run.cycle, local_rank, now)}
        for local_rank in self._places.keys() - warm:
            self._start_cold(local_rank)
        if self._warm is not None and self._control is not None:
            self._control.renew()
            self._warm.plan.began(self._places, now)
            log("workers_started", cycle=run.cycle, warm=len(warm), cold=len(self._places) - len(warm))
            first = run.group_rank * self._job.per_node
            self._note({process.pid: first + local_rank for local_rank, process in self._live.items()})

    def _take_warm(self, cycle: Cycle, local_rank: int, now: float) -> bool:
        """Return whether a warm worker of this rank is, or is about to be, a worker of `cycle`."""
        if self._warm is None:
            return False
        place, had = self._places[local_rank], self._lasting[local_rank]
        env = {name: value for name, value in {**place.env, **place.streams.env}.items() if had.get(name) != value}
        process = self._warm.order(local_rank, cycle, env, place.streams, now)
        if process is not None:
            self._add(local_rank, process)
        return process is not None

    def _start_cold(self, local_rank: int) -> None:
        agent, place = self._node_agent(), self._places[local_rank]
        process = self._admitted(local_rank, lambda: agent.start(local_rank, place.env, place.streams))
        self._add(local_rank, process)
        self.evidence.started({local_rank: process.pid})

    def _admitted(self, local_rank: int, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        return start() if self._control is None else self._control.admit(local_rank, start)

    def _node_agent(self) -> NodeAgent:
        """Raises OSError."""
        if self._agent is None:
            agent = NodeAgent(self._job)
            if self._sockets:
                self._lasting = {rank: {**env, **self._sockets[rank]} for rank, env in agent.lasting().items()}
            self._agent = agent
        return self._agent

    def _keep_warm(self) -> None:
        """Have warm workers from now on. Raises OSError."""
        local_ranks = range(self._job.per_node)
        self._control = Control(self._wake)
        names = self._control.open(Path(self._job.local_folder) / "control", local_ranks)
        self._sockets = {local_rank: {SOCKET: name} for local_rank, name in names.items()}
        self._warm = WarmWorkers(local_ranks, self._control, self._start_warm, self._hear)

    def _start_warm(self, local_rank: int, streams: WorkerStreams) -> subprocess.Popen[bytes]:
        """Raises OSError."""
        agent = self._node_agent()
        command = warm_command(self._job.command, self._job.preload)
        env = self._lasting[local_rank]
        return self._admitted(local_rank, lambda: agent.start(local_rank, env, streams, command))

    def _note(self, ranks: Mapping[int, int]) -> None:
        """Have others find the workers by their ranks."""
        try:
            worker_ranks.write(Path(self._job.local_folder), ranks)
        except OSError as error:
            file_failed("worker ranks", error)

    def _add(self, local_rank: int, process: subprocess.Popen[bytes]) -> None:
        self._pidfds[local_rank] = os.pidfd_open(process.pid)
        self._epoll.register(self._pidfds[local_rank], select.EPOLLIN | select.EPOLLONESHOT)
        self._live[local_rank] = process

    def stop(self, cycle: Cycle, grace: float, signal_name: str, now: float) -> None:
        """See actions.StopWorkers."""
        if self._warm is not None:
            self._warm.plan.stopping()
        if name := self._machine.stop(cycle, grace, signal_name, now):
            for process in self._live.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.Signals[name])

    def kill(self) -> None:
        """SIGKILL to each worker and its process group, warm ones too, without a look at anything. What has left the
        group is ended by the sweep that follows when the workers are stopped."""
        if self._warm is not None:
            self._warm.end()
        for process in self._live.values():
            for send in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    send(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the warm workers for good: the node leaves."""
        if self._warm is not None:
            self._warm.close()

    def beats(self) -> tuple[Beat, ...]:
        """See WorkerEvidence.beats."""
        beats = self.evidence.beats()
        if self._warm is not None:
            for beat in beats:
                self._warm.plan.beat(beat.local_rank)
        return beats

    def poll(self, now: float) -> list[AgentEvent]:
        """What has become of the workers since the last call. Takes at most about 0.1 s."""
        self._hear()
        self._collect()
        if self._warm is not None:
            if self._machine.state is WorkersState.NONE:
                self._warm.plan.idle()
            self._warm.poll(now)
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
            os.close(self._pidfds.pop(local_rank))
            if self._never_began(local_rank, process):
                continue
            self.evidence.exited(local_rank)
            if code != 0 and self._machine.state is not WorkersState.STOPPING:  # or it is our own doing
                error_file = self._agent.error_file(local_rank) if self._agent else None
                self._machine.fail(self.evidence.failure(local_rank, code, error_file))

    def _never_began(self, local_rank: int, process: subprocess.Popen[bytes]) -> bool:
        """Whether this worker, which has exited, is a warm one that had not taken up its order: a cold start takes its
        place, if the cycle goes on."""
        if self._control is None or self._warm is None:
            return False
        self._control.drain(process.pid)
        self._hear()
        self._control.forget(process.pid)
        if not self._warm.waits(local_rank):
            return False
        if self._machine.state is not WorkersState.RUNNING:
            self._warm.drop(local_rank)
            return True
        self._warm.lost(local_rank, process.returncode, clock.now())
        with self._told():
            self._start_cold(local_rank)
        return True

    def _hear(self) -> None:
        """Take what workers have sent."""
        if self._control is None or self._warm is None:
            return
        for local_rank in self._warm.hear(self._control.poll()):
            if local_rank in self._live:
                self.evidence.started({local_rank: self._live[local_rank].pid})

    def _swept(self) -> bool:
        """Whether nothing is left below this process; if not, `due` says when to try again."""
        try:
            left = sweep(os.getpid(), self._spared(), bound=_PIECE)
            self._collect()
            reap_orphans([*(process.pid for process in self._live.values()), *self._spared()])
        except OSError as error:
            if self._later():
                log("cannot_sweep", level="error", reason=str(error))
            return False
        self._retry_at = clock.now() + _PIECE if left or self._live else None
        if left and not self._warned:
            self._warned = True
            log("workers_left", level="warning", pids=",".join(map(str, left)))
        return self._retry_at is None

    def _spared(self) -> Collection[int]:
        """Processes below this one that are no workers of the cycle, and live on."""
        return [*self._others(), *(self._warm.pids if self._warm else ())]

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
        self._places.clear()
        if self._warm is not None:
            self._drop_orders()
            self._note({})
        self.evidence.close()
        if self._agent is not None:
            self._agent.release()

    def _drop_orders(self) -> None:
        """Take back what warm workers have not taken up; they are ended with the cycle."""
        if self._warm is not None:
            for local_rank in range(self._job.per_node):
                self._warm.drop(local_rank)

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

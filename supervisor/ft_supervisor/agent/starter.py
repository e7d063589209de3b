"""Starts this node's workers: in the environment that torch's agent makes, warm where one waits, else cold."""

from __future__ import annotations

import errno
import resource
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ft_supervisor.agent.control import Control
from ft_supervisor.agent.failures import look_up
from ft_supervisor.agent.node_agent import NodeAgent, WorkerStreams
from ft_supervisor.agent.warm_start import SOCKET
from ft_supervisor.agent.warm_workers import WarmWorkers, warm_command
from ft_supervisor.agent.worker_evidence import WorkerEvidence
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Cycle, Failure, Job
from ft_supervisor.core.protocol.settings import RestartMode
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import file_failed
from ft_supervisor.run_folder import worker_ranks

_LOOK_UP = 0.5
NO_PLACE = {"RANK": "", "WORLD_SIZE": ""}
"""Variables of a spare's script. An empty one is no number: without these a script that calls no restartable function
might train alone, as rank 0 of 1."""
_FILES, _FILES_OF_WORKER = 128, 8
"""File descriptors: of an agent without workers, with some to spare, and for each worker while it is started."""


@dataclass(frozen=True)
class _Place:
    """One worker's streams, and the variables that it gets beyond those of this process and of its streams."""

    env: Mapping[str, str]
    streams: WorkerStreams


class Starter:
    """For the main thread: a worker's death signal fires when the thread that started it ends. `read`: has the warm
    workers' `hear` called with what workers have sent."""

    def __init__(self, job: Job, evidence: WorkerEvidence, wake: Callable[[], None], read: Callable[[], None]) -> None:
        """Raises OSError."""
        self._job = job
        self._evidence = evidence
        self._agent: NodeAgent | None = None
        """Made with the first start: where its folder cannot be made, the node can still say so, and be a spare."""
        self._places: dict[int, _Place] = {}
        """What the workers of the present cycle are started with, by local rank."""
        self._lasting: dict[int, dict[str, str]] = {}
        """By local rank: the variables that are the same in all cycles."""
        self._sockets: dict[int, dict[str, str]] = {}
        """FT_SUPERVISOR_SOCKET by local rank, where there is one."""
        self.control: Control | None = None
        self.warm: WarmWorkers | None = None
        _make_room(2 * job.per_node if job.preload else job.per_node)  # with the warm ones beside them
        if job.preload or job.settings.restart is RestartMode.IN_PROCESS:
            local_ranks = range(job.per_node)
            self.control = Control(wake)
            names = self.control.open(Path(job.local_folder) / "control", local_ranks)
            self._sockets = {local_rank: {SOCKET: name} for local_rank, name in names.items()}
            if job.preload:
                self.warm = WarmWorkers(local_ranks, self.control, self._start_warm, read)

    def prepare(self, run: Run, kept: Collection[int]) -> None:
        """Make all ready for the workers of `run`. `kept`: the local ranks of those that go on in their processes.
        Raises OSError."""
        agent = self._node_agent()
        streams = self._evidence.open(run, kept)
        self._places = {local_rank: _Place(env, streams[local_rank]) for local_rank, env in agent.prepare(run).items()}

    def variables(self, local_rank: int) -> dict[str, str]:
        """Return what the cycle puts into a worker's environment. The socket is not part of it: it is the process's."""
        place = self._places[local_rank]
        return {**place.env, **place.streams.env}

    def take_warm(self, cycle: Cycle, local_rank: int, now: float) -> subprocess.Popen[bytes] | None:
        """Return this rank's warm worker, which is, or is about to be, a worker of `cycle`; None if there is none."""
        if self.warm is None:
            return None
        had = self._lasting[local_rank]
        env = {name: value for name, value in self.variables(local_rank).items() if had.get(name) != value}
        return self.warm.order(local_rank, cycle, env, self._places[local_rank].streams, now)

    def start_cold(self, local_rank: int) -> subprocess.Popen[bytes]:
        """Return a new process of this rank. Raises OSError, MemoryError."""
        agent, place = self._node_agent(), self._places[local_rank]
        env = {**place.env, **self._sockets.get(local_rank, {})}
        return self._admitted(local_rank, lambda: agent.start(local_rank, env, place.streams))

    def began(self, run: Run, pids: Mapping[int, int], now: float) -> None:
        """Note that all workers of `run` have been started, with these pids by local rank."""
        if self.control is not None:
            self.control.renew()
        first = run.group_rank * self._job.per_node
        self._note({pid: first + local_rank for local_rank, pid in pids.items()})
        if self.warm is not None:
            self.warm.plan.began(self._places, now)

    def error_file(self, local_rank: int) -> Path | None:
        """Return the file to which torch's @record lets this worker write its error; None before a start."""
        return self._agent.error_file(local_rank) if self._agent else None

    def release(self) -> None:
        """Forget the cycle, once none of its workers runs."""
        self._places.clear()
        self._note({})
        if self._agent is not None:
            self._agent.release()

    def wrong_command(self) -> Failure | None:
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
        return None if wrong is None else self._evidence.failure(0, wrong[0], None, wrong[1])

    def _start_warm(self, local_rank: int, streams: WorkerStreams) -> subprocess.Popen[bytes]:
        """Raises OSError."""
        return self._start_ahead(local_rank, streams, {}, warm_command(self._job.command, self._job.preload))

    def start_spare(self, local_rank: int, streams: WorkerStreams) -> subprocess.Popen[bytes]:
        """Run the script without a place in a cycle, while no workers run. Raises OSError, MemoryError."""
        return self._start_ahead(local_rank, streams, NO_PLACE)

    def _start_ahead(
        self, local_rank: int, streams: WorkerStreams, more: Mapping[str, str], command: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        agent = self._node_agent()
        if not self._lasting:  # asked before any workers run, as those that are started ahead come first of all
            lasting = agent.lasting()
            self._lasting = {rank: {**env, **self._sockets[rank]} for rank, env in lasting.items()}
        env = {**self._lasting[local_rank], **more}
        return self._admitted(local_rank, lambda: agent.start(local_rank, env, streams, command))

    def _admitted(self, local_rank: int, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        return start() if self.control is None else self.control.admit(local_rank, start)

    def _node_agent(self) -> NodeAgent:
        """Raises OSError."""
        if self._agent is None:
            self._agent = NodeAgent(self._job)
        return self._agent

    def _note(self, ranks: Mapping[int, int]) -> None:
        """Write the workers' ranks to the file by which other commands find them."""
        try:
            worker_ranks.write(Path(self._job.local_folder), ranks)
        except OSError as error:
            file_failed("worker ranks", error)


def _make_room(workers: int) -> None:
    """Raise the limit of open files where it is too low for so many workers. They inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_OF_WORKER * workers
    if soft < needed and soft != resource.RLIM_INFINITY:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

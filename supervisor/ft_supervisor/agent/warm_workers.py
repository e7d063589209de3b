"""Keeps a warm worker for each local rank: an interpreter that has imported `workers.preload` and waits for a cycle.

core/agent/warm_plan.py decides when they are started, warm_start.py is what they run. Until it has taken up an order, a
warm worker runs nothing of the job: its death is one line in the log, and a cold start takes its place.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ft_supervisor.agent.control import Control, Said
from ft_supervisor.agent.last_lines import last_lines
from ft_supervisor.agent.node_agent import WorkerStreams
from ft_supervisor.core.agent.warm_plan import WarmPlan
from ft_supervisor.core.protocol.interpreter import find_interpreter
from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.process.log import log
from ft_supervisor.process.signals import describe_exit
from ft_supervisor.process.tree import kill_group

_PRINTED = 4096
"""Bytes kept of what the modules print while they are imported, for each stream: a pipe always has room for so much."""
_REASON = 1, 500
"""Lines and bytes of that in the log line of a warm worker's death."""

Start = Callable[[int, WorkerStreams], subprocess.Popen[bytes]]
"""Starts the warm worker of a local rank. Raises OSError."""


def warm_command(command: tuple[str, ...], preload: tuple[str, ...]) -> list[str]:
    """Return the command of a warm worker. Raises NoInterpreter."""
    found = find_interpreter(command)
    return [*found.start, str(Path(__file__).with_name("warm_start.py")), ",".join(preload), *found.runs]


@dataclass(eq=False)
class _Printed:
    """The reading end of a stream of a warm worker, and the end of what came."""

    fd: int
    tail: bytes = b""

    def read(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self.fd, 1 << 16):
                self.tail = (self.tail + data)[-_PRINTED:]


@dataclass(eq=False)
class _Warm:
    """One warm worker. `order`: the message that it is to get, with the streams; None until a cycle needs it."""

    local_rank: int
    process: subprocess.Popen[bytes]
    printed: tuple[_Printed, _Printed]
    ready: bool = False
    """Whether it has imported all."""
    ended: bool = False
    """Whether its death is no news: it was killed, or has left by itself after a line in the log."""
    late: bool = False
    order: tuple[Mapping[str, object], WorkerStreams] | None = field(default=None, repr=False)


class WarmWorkers:
    """For the main thread, as a warm worker dies with the thread that started it. `control`: its sockets are open.
    `read`: has `hear` called with what workers have sent."""

    def __init__(self, local_ranks: Collection[int], control: Control, start: Start, read: Callable[[], None]) -> None:
        self._control = control
        self._start = start
        self._read = read
        self.plan = WarmPlan(local_ranks)
        self._warm: dict[int, _Warm] = {}
        self._closed = False

    @property
    def pids(self) -> Collection[int]:
        """Return those that wait, which a sweep of the workers must spare."""
        return [warm.process.pid for warm in self._warm.values() if warm.order is None]

    @property
    def due(self) -> float | None:
        """The time of process.clock at which `poll` is due even without a message or an exit; None for no such time."""
        return None if self._closed else self.plan.due

    def order(
        self, local_rank: int, cycle: Cycle, env: Mapping[str, str], streams: WorkerStreams, now: float
    ) -> subprocess.Popen[bytes] | None:
        """Make this rank's warm worker a worker of `cycle`; it finishes its import first. `env`: all that it was not
        started with. Return its process; None where there is none, and a cold start is due."""
        warm = self._warm.get(local_rank)
        if warm is None or warm.ended or warm.process.poll() is not None:
            return None
        warm.order = ({"type": "run", "cycle": str(cycle), "env": dict(env)}, streams)
        self.plan.ordered(local_rank, now)
        self._send(warm)
        return warm.process

    def waits(self, local_rank: int) -> bool:
        """Return whether this rank's worker is one that has not taken up its order yet."""
        warm = self._warm.get(local_rank)
        return warm is not None and warm.order is not None

    def poll(self, now: float) -> None:
        """Start those that are due, and look at the others."""
        for warm in list(self._warm.values()):
            for printed in warm.printed:
                printed.read()
            if warm.order is None and warm.process.poll() is not None:
                self._control.drain(warm.process.pid)  # it may have told why it leaves
                self._read()
                self.lost(warm.local_rank, warm.process.returncode, now)
        for warm in (self._warm[local_rank] for local_rank in self.plan.late(now)):
            if not warm.late:
                warm.late = True
                log("warm_worker_late", "warning", local_rank=warm.local_rank)
                kill_group(warm.process.pid)
        if not self._closed:
            for local_rank in self.plan.next(now):
                self._begin(local_rank, now)

    def hear(self, messages: Sequence[Said]) -> list[int]:
        """Take what workers have sent. Return the local ranks that have taken up their order."""
        by_pid = {warm.process.pid: warm for warm in self._warm.values()}
        taken_up = []
        for said in messages:
            if (warm := by_pid.get(said.pid)) is None or said.message is None:
                continue  # of a connection's end the process's own end tells more
            match said.message["type"]:
                case "warm" if not warm.ready:
                    warm.ready = True
                    if warm.order is None:
                        self.plan.ready(warm.local_rank)
                    seconds, memory = (said.message.get(name) for name in ("seconds", "memory"))
                    log("warm_worker_ready", "debug", local_rank=warm.local_rank, seconds=seconds, memory_mib=memory)
                    self._send(warm)
                case "cold":
                    warm.ended = True
                    self.plan.refuse()
                    log("preload_failed", "warning", local_rank=warm.local_rank, reason=said.message.get("reason"))
                    self._control.forget(said.pid)  # it waits for this to leave
                case "started" if warm.order is not None:
                    taken_up.append(warm.local_rank)
                    self._take_up(warm)
        return taken_up

    def lost(self, local_rank: int, code: int, now: float) -> None:
        """Note that this rank's warm worker has exited; it has not taken up an order."""
        warm = self._warm.pop(local_rank)
        self._control.forget(warm.process.pid)
        text = last_lines(b"".join(_ended(printed) for printed in warm.printed), *_REASON)
        if warm.ended:
            self.plan.gone(local_rank)
        else:
            pause = self.plan.died(local_rank, now)
            log(
                "warm_worker_lost",
                "warning",
                local_rank=local_rank,
                how=describe_exit(code),
                printed=text or None,
                again_in=f"{pause:g} s",
            )

    def drop(self, local_rank: int) -> None:
        """Note that this rank's warm worker, which had an order, was ended with its cycle."""
        if self.waits(local_rank):
            warm = self._warm[local_rank]
            warm.ended = True
            self.lost(local_rank, 0, 0.0)

    def drop_orders(self) -> None:
        """Take back what has not been taken up: these are ended with the cycle."""
        for local_rank in list(self._warm):
            self.drop(local_rank)

    def end(self) -> None:
        """Kill those that wait."""
        for warm in self._warm.values():
            if warm.order is None:
                warm.ended = True
                kill_group(warm.process.pid)

    def close(self) -> None:
        """Kill those that wait, and start no others: the node ends."""
        self._closed = True
        self.end()

    def _begin(self, local_rank: int, now: float) -> None:
        fds: list[int] = []
        try:
            for _ in range(2):
                fds += os.pipe()
            for reading in fds[::2]:
                os.set_blocking(reading, False)
            process = self._start(local_rank, WorkerStreams(fds[1], fds[3], {}))
        except (OSError, MemoryError) as error:
            for fd in fds:
                os.close(fd)
            pause = self.plan.died(local_rank, now)
            log("warm_worker_failed", "warning", local_rank=local_rank, error=str(error), again_in=f"{pause:g} s")
            return
        os.close(fds[1])
        os.close(fds[3])
        self._warm[local_rank] = _Warm(local_rank, process, (_Printed(fds[0]), _Printed(fds[2])))
        self.plan.started(local_rank, now)

    def _send(self, warm: _Warm) -> None:
        """Send the order, if there is one and the import is over. What the modules printed comes first in the worker's
        output. Where sending fails the process is about to die."""
        if warm.order is None or not warm.ready:
            return
        message, streams = warm.order
        fds = (streams.stdout, streams.stderr)
        for printed, fd in zip(warm.printed, fds, strict=True):
            printed.read()
            _pass_on(printed.tail, fd)
        self._control.send(warm.process.pid, message, fds)

    def _take_up(self, warm: _Warm) -> None:
        """From here on it is a worker like any other."""
        for printed in warm.printed:
            _ended(printed)
        del self._warm[warm.local_rank]
        self.plan.gone(warm.local_rank)


def _ended(printed: _Printed) -> bytes:
    """Close the stream, and return the end of what came."""
    printed.read()
    os.close(printed.fd)
    return printed.tail


def _pass_on(data: bytes, fd: int) -> None:
    """Write the data into a pipe as far as it takes it at once. The worker's own descriptor stays as it is."""
    if not data:
        return
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EMFILE, errno.ENFILE):
            raise
        return
    try:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(again, data)
    finally:
        os.close(again)

"""The agent's main loop: what happens goes into core.agent's machine, and what comes out is done, in order.

Everything that may block lives in a thread that only puts into the loop's queue. Alive comes from the machine's Tick,
so that a main loop that hangs is a silent agent.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NoReturn

from ft_supervisor.agent import barrier
from ft_supervisor.agent.node_agent import quiet_torch, worker_environment
from ft_supervisor.agent.wire import FromWire, Wire
from ft_supervisor.agent.workers import Workers
from ft_supervisor.core.actions import AgentAction, EnterBarrier, Leave, Log, Send, Start, StopWorkers, Tell
from ft_supervisor.core.agent import AgentMachine
from ft_supervisor.core.events import AgentEvent, Terminated, Tick
from ft_supervisor.core.model import KILL_BOUND
from ft_supervisor.core.orders import Begin, Done, Order, Terminate
from ft_supervisor.process import log as logs
from ft_supervisor.process.link import Link, LinkClosed
from ft_supervisor.process.log import log
from ft_supervisor.process.tree import become_subreaper, sweep

BROKEN = 70
"""Exit code of an agent with a bug, or without a daemon (EX_SOFTWARE); the daemon starts another."""
BEGIN_BOUND = 60.0
"""Seconds to wait for the first order."""
_FLUSH_BOUND = 0.5


@dataclass(frozen=True)
class _WorkerExited:
    """A wake-up; Workers.poll finds out which."""


def run(link: Link) -> NoReturn:
    """Be the agent at this end of `link`. Leaves by os._exit."""
    try:
        begin = link.receive(BEGIN_BOUND)
        if not isinstance(begin, Begin):
            raise RuntimeError(f"{begin!r} instead of Begin")
        logs.setup("agent", begin.node.name)
        quiet_torch()
        worker_environment(begin.job)
        become_subreaper()
        Shell(link, begin).run()
    except LinkClosed:
        _die("the daemon is gone")
    except BaseException:
        _die(traceback.format_exc())


def _die(reason: str) -> NoReturn:
    """Take the workers along, at once."""
    log("agent_dies", level="error", reason=reason)
    sweep(os.getpid(), bound=KILL_BOUND)
    _exit(BROKEN)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Shell:
    """Everything of one agent; all methods but those of the link's thread are for the main thread."""

    def __init__(self, link: Link, begin: Begin) -> None:
        self._job = begin.job
        self._link = link
        self._queue: SimpleQueue[Order | FromWire | _WorkerExited] = SimpleQueue()
        self._machine = AgentMachine(begin.job, begin.node, begin.incarnation, begin.memory, time.monotonic())
        self._workers = Workers(begin.job, begin.node, lambda: self._queue.put(_WorkerExited()))
        self._wire = Wire(begin.job, begin.node, begin.incarnation, self._queue.put)
        self._tick_at = time.monotonic()
        self._leaving = False
        threading.Thread(target=self._read_link, daemon=True, name="link").start()

    def run(self) -> NoReturn:
        """The main loop."""
        while True:
            self._wire.watch(self._machine.watched)
            now = time.monotonic()
            if now >= self._tick_at:
                self._tick_at = now + self._job.timeouts.heartbeat
                self._handle(*self._wire.tick(now), Tick())
            else:
                self._next_item(min(self._tick_at, self._workers.due or self._tick_at) - now)
            self._handle(*self._workers.poll(time.monotonic()))

    def _next_item(self, timeout: float) -> None:
        try:
            item = self._queue.get(timeout=max(0.0, timeout))
        except Empty:
            return
        match item:
            case FromWire():
                self._handle(*self._wire.receive(item))
            case Terminate(reason):
                self._handle(Terminated(reason))
            case _WorkerExited():
                pass
            case _:
                log("order_ignored", level="warning", order=type(item).__name__)

    def _handle(self, *events: AgentEvent) -> None:
        for event in events:
            for action in self._machine.handle(event, time.monotonic()):
                self._do(action)

    def _do(self, action: AgentAction) -> None:
        match action:
            case Log():
                logs.emit(action)
            case Tell(order):
                self._link.send(order)
            case Send(message):
                self._wire.send(message)
            case Start(run):
                self._workers.start(run)
            case StopWorkers(cycle, grace, signal):
                self._workers.stop(cycle, grace, signal, time.monotonic())
            case EnterBarrier(cycle, world_size):
                barrier.enter(self._job, self._wire.address, cycle, world_size)
            case Leave():
                self._leave(action)

    def _leave(self, leave: Leave) -> NoReturn:
        """Done says that nothing of ours is left, so it comes last."""
        self._wire.flush(_FLUSH_BOUND)
        sweep(os.getpid(), bound=KILL_BOUND)
        self._leaving = True
        self._link.send(Done(leave.code, leave.verdict, leave.reason))
        self._link.flush()
        _exit(leave.code)

    def _read_link(self) -> None:
        """In a thread of its own: a dead daemon ends everything at once, whatever the main loop is at."""
        while True:
            try:
                order = self._link.receive(None)
            except LinkClosed:
                if self._leaving:  # the daemon has heard Done and hung up: the exit code is still the one told
                    return
                _die("the daemon is gone")
            if order is not None:
                self._queue.put(order)

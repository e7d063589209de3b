"""The agent's main loop: it feeds events into the machine of core/agent/agent.py, and carries out its actions in order.

All work that may block is done in threads that only put items into the loop's queue. Alive comes from the machine's
Tick, so that an agent whose main loop hangs is silent.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NoReturn

from ft_supervisor.agent import barrier
from ft_supervisor.agent.activity import Looks
from ft_supervisor.agent.connection import FromWire
from ft_supervisor.agent.guard_timer import Guard
from ft_supervisor.agent.node_agent import quiet_torch, worker_environment
from ft_supervisor.agent.wire import Wire
from ft_supervisor.agent.workers import Workers
from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.actions import (
    AgentAction,
    Announce,
    Dial,
    DropParked,
    EndWorkers,
    EnterBarrier,
    GatherEvidence,
    Leave,
    LookAtWorkers,
    ReleaseWorkers,
    Send,
    Start,
    StopWorkers,
    Tell,
)
from ft_supervisor.core.protocol.events import (
    AgentEvent,
    CheckAnswered,
    Connected,
    EvidenceTaken,
    Terminated,
    Tick,
    TurnedUnhealthy,
    WorkersSeen,
)
from ft_supervisor.core.protocol.evidence import TAKING
from ft_supervisor.core.protocol.model import KILL_BOUND, Cycle
from ft_supervisor.core.protocol.orders import AgentState, Begin, Done, Order, Terminate
from ft_supervisor.evidence.gather import Gathering
from ft_supervisor.journal.journal import Journal
from ft_supervisor.process import clock
from ft_supervisor.process import log as logs
from ft_supervisor.process.link import Link, LinkClosed
from ft_supervisor.process.log import current_traceback, journal_failed, log
from ft_supervisor.process.log_lines import render
from ft_supervisor.process.threads import guard
from ft_supervisor.process.tree import become_subreaper, sweep

BROKEN = 70
"""Exit code of an agent with a bug, or without a daemon (EX_SOFTWARE); the daemon starts another."""
BEGIN_BOUND = 60.0
"""Seconds to wait for the first order."""
_FLUSH_BOUND = 0.5
_OUTPUT_BOUND = 1.0
"""Seconds to pass on the workers' last output."""
EVIDENCE_LOOK = 0.1
"""Seconds between two checks whether the evidence is there."""


@dataclass(frozen=True)
class _Evidence:
    """Evidence of these workers that is being taken: see actions.GatherEvidence."""

    cycle: Cycle
    number: int
    ranks: tuple[int, ...]
    work: Gathering | None
    until: float


@dataclass(frozen=True)
class _WorkerExited:
    """A wake-up; Workers.poll finds out which."""


def run(link: Link) -> NoReturn:
    """Run the agent at this end of `link`. Leaves by os._exit."""
    try:
        begin = link.receive(BEGIN_BOUND)
        if not isinstance(begin, Begin):
            raise RuntimeError(f"{begin!r} instead of Begin")
        logs.setup("agent", begin.node.name, begin.job.settings.logs.format, begin.job.settings.logs.level)
        guard(_die)
        quiet_torch()
        lease_guard = Guard(dict(os.environ))
        worker_environment(begin.job)
        become_subreaper()
        Shell(link, begin, lease_guard).run()
    except LinkClosed:
        _die("the daemon is gone")
    except BaseException:
        _die(current_traceback())


def _die(reason: str) -> NoReturn:
    """End this process at once, with its workers."""
    log("agent_dies", level="error", reason=reason)
    try:
        sweep(os.getpid(), bound=KILL_BOUND)
    except OSError as error:  # the workers die with this process all the same, and the daemon sweeps after it
        log("cannot_sweep", level="error", reason=str(error))
    _exit(BROKEN)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    logs.flush()
    os._exit(code)


class Shell:
    """All parts of one agent; all methods but those of the link's thread are for the main thread."""

    def __init__(self, link: Link, begin: Begin, guard: Guard) -> None:
        self._job = begin.job
        self._link = link
        self._queue: SimpleQueue[Order | FromWire | WorkersSeen | _WorkerExited] = SimpleQueue()
        now = clock.now()
        self._machine = AgentMachine(
            begin.job, begin.node, begin.incarnation, begin.memory, now, begin.epoch, begin.waited
        )
        self._journal = Journal.open(
            Path(begin.job.local_folder), f"agent-{begin.incarnation}", begin, now, journal_failed
        )
        self._guard = guard
        self._workers = Workers(begin.job, begin.node, lambda: self._queue.put(_WorkerExited()), lambda: guard.pids)
        self._wire = Wire(begin.job, begin.node, begin.incarnation, self._queue.put)
        self._evidence: _Evidence | None = None
        self._looks = Looks(self._queue.put)
        self._tick_at = now
        self._leaving = False
        threading.Thread(target=self._read_link, daemon=True, name="link").start()

    def run(self) -> NoReturn:
        """Run the main loop."""
        now = clock.now()
        self._carry_out(None, self._machine.start(now), now)
        while True:
            self._kill_first()
            self._wire.watch(self._machine.watched)
            now = clock.now()
            self._handle(*self._wire.judge(now))
            if now >= self._tick_at:
                self._tick_at = now + self._job.timeouts.heartbeat
                self._guard.keep()
                self._handle(*self._workers.beats(), Tick())
            else:
                dues = (
                    self._tick_at,
                    self._workers.due,
                    self._wire.due,
                    EVIDENCE_LOOK + now if self._evidence else None,
                )
                self._next_item(min(due for due in dues if due is not None) - now)
            if self._machine.state is AgentState.CLOSING:
                self._workers.close()
            self._workers.stand_by(self._machine.spare, clock.now())
            events = self._workers.poll(clock.now())
            # what they have sent before comes before: whether they made progress decides how they are started again
            self._handle(*(self._workers.beats() if events else ()), *events, *self._evidence_taken())

    def _evidence_taken(self) -> list[AgentEvent]:
        """Return the event that the evidence is there, or that it has taken too long."""
        taking = self._evidence
        if taking is None or not (taking.work is None or taking.work.wait(0) or clock.now() >= taking.until):
            return []
        self._evidence = None
        words = {rank: self._workers.evidence.last_words(rank) for rank in taking.ranks}
        rules = tuple((rank, rules) for rank, (rules, _) in words.items())
        lines = tuple((rank, lines) for rank, (_, lines) in words.items())
        digests = taking.work.digests() if taking.work else ()
        return [EvidenceTaken(taking.cycle, taking.number, digests, rules, lines)]

    def _next_item(self, timeout: float) -> None:
        try:
            item = self._queue.get(timeout=max(0.0, timeout))
        except Empty:
            return
        finally:
            self._kill_first()
        match item:
            case FromWire():
                received = self._wire.receive(item, clock.now())
                if any(isinstance(event, Connected) for event in received) and (address := self._wire.address):
                    self._link.send(orders.Reached(*address))
                self._handle(*received)
            case Terminate(reason):
                self._handle(Terminated(reason))
            case orders.Checked(cycle, problem):
                self._handle(CheckAnswered(cycle, problem))
            case orders.Sick(problem):
                self._handle(TurnedUnhealthy(problem))
            case WorkersSeen():
                self._handle(item)
            case _WorkerExited():
                pass
            case _:
                log("order_ignored", level="warning", order=type(item).__name__)

    def _handle(self, *events: AgentEvent) -> None:
        for event in events:
            self._kill_first()
            now = clock.now()
            self._carry_out(event, self._machine.handle(event, now), now)

    def _kill_first(self) -> None:
        """Kill the workers of a node that stood still past its fence, before it reads or writes anything else: it may
        be replaced already. The machine finds out itself that the fence has passed, and decides what follows."""
        end = self._machine.fence_at
        if end is not None and clock.now() >= end:
            self._workers.kill()

    def _carry_out(self, event: AgentEvent | None, actions: Sequence[AgentAction], now: float) -> None:
        """Record the step first, as the last action does not return, then perform the actions. `event` None: the
        machine's start."""
        self._guard.set(self._machine.guard_at)
        memory = self._machine.memory
        self._journal.record(now, event, actions, term=memory.promise, cycle=memory.newest)
        for action in actions:
            self._do(action)

    def _do(self, action: AgentAction) -> None:
        match action:
            case Announce(fact):
                logs.emit(render(fact, self._machine.job))
            case Tell(order):
                self._link.send(order)
            case Dial(candidates):
                self._wire.dial(candidates)
            case Send(message):
                self._wire.send(message)
            case Start(run):
                self._workers.start(run)
            case StopWorkers():
                self._workers.stop(action, clock.now())
            case ReleaseWorkers():
                self._workers.release(action)
            case EndWorkers():
                self._workers.end(action)
            case DropParked():
                self._workers.drop_parked()
            case LookAtWorkers(cycle, stacks):
                pids, evidence = self._workers.pids(), self._workers.evidence
                take = partial(evidence.look_at_stacks, pids) if stacks else None
                self._looks.begin(cycle, pids, evidence.output(), evidence.footprints, take)
            case GatherEvidence(cycle, number, gently):
                pids = self._workers.pids()
                work = self._workers.evidence.take_stacks(pids, gently=gently)
                ranks = () if gently else tuple(sorted(pids))
                self._evidence = _Evidence(cycle, number, ranks, work, clock.now() + TAKING)
            case EnterBarrier(cycle, world_size):
                barrier.enter(self._job, self._wire.address, cycle, world_size)
            case Leave():
                self._leave(action)

    def _leave(self, leave: Leave) -> NoReturn:
        """Send Done, which means that no process of ours is left, and so comes last."""
        self._wire.flush(_FLUSH_BOUND)
        sweep(os.getpid(), bound=KILL_BOUND)
        self._workers.evidence.flush(_OUTPUT_BOUND)
        self._leaving = True
        self._link.send(Done(leave.code, leave.verdict, leave.reason))
        self._link.flush()
        _exit(leave.code)

    def _read_link(self) -> None:
        """Read the daemon's orders, in a thread of its own: a dead daemon ends this process at once, whatever the main
        loop does."""
        while True:
            try:
                order = self._link.receive(None)
            except LinkClosed:
                if self._leaving:  # the daemon has received Done and closed the link: the exit code is the one in Done
                    return
                _die("the daemon is gone")
            if order is not None:
                self._queue.put(order)

"""The daemon's process: one loop that turns signals, links and exits into events, and actions into deeds."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ft_slurm import environment
from ft_slurm.errors import SlurmError
from ft_supervisor.config.model import JobConfig
from ft_supervisor.core.daemon.daemon import AGENT, COORDINATOR, DaemonMachine
from ft_supervisor.core.protocol import actions
from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.core.protocol.events import (
    ChecksDone,
    DaemonEvent,
    InBatchJob,
    NoVerdict,
    Ordered,
    Signalled,
    SlurmAnswered,
    Tick,
    VerdictFileFound,
)
from ft_supervisor.core.protocol.model import CONFIG_ERROR, INTERRUPTED, NO_PROMISE, Job, Memory, Node, Verdict
from ft_supervisor.core.protocol.orders import Begin, Listening
from ft_supervisor.daemon import batch, files, identity, parent
from ft_supervisor.daemon.checks import Runner, built_in
from ft_supervisor.daemon.children import COMMANDS, Children
from ft_supervisor.daemon.signals import Signals
from ft_supervisor.daemon.slurm import SlurmDesk
from ft_supervisor.journal.journal import Journal
from ft_supervisor.process import clock, tree
from ft_supervisor.process.background import Background, wait_all
from ft_supervisor.process.log import current_traceback, emit, file_failed, flush, journal_failed, log, say, setup
from ft_supervisor.process.log_lines import Line, make_line, render
from ft_supervisor.process.threads import guard
from ft_supervisor.store import push as store_push
from ft_supervisor.store.keys import Keys

END_BOUND = 5.0
"""Seconds that the last sweep may take."""
CHECKS_BOUND = 2.0
"""Seconds that running health checks get to be ended."""
SWEEP_PAUSE = 0.05
"""Seconds between two sweeps for a child that is gone while something below it still lives, and between two looks
whether the verdict's file has been read."""


def run(config: JobConfig, environ: Mapping[str, str]) -> int:
    """Be this node's daemon. Returns 2 after one line on stderr if configuration and step do not fit; else never."""
    setup("daemon", environ.get("SLURMD_NODENAME", ""), config.settings.logs.format, config.settings.logs.level)
    parent_fd = parent.take(os.environ)
    try:
        step = environment.read(environ)
        job, node, warnings = identity.build(config, step, environ)
    except (identity.IdentityError, SlurmError) as error:
        say(f"ft-supervisor: {error}", "error")
        return CONFIG_ERROR
    os.environ.pop(identity.NONCE, None)  # workers and health checks could write the verdict's file with it
    notes = []
    if config.policy_note:
        notes.append(make_line("policy", "info" if node.infra_rank == 0 else "debug", note=config.policy_note))
    notes += [make_line("identity", "warning", note=text) for text in warnings]
    gpus = job.per_node if config.per_node == "gpu" else None
    slurm = None if job.signal_workers else SlurmDesk(step, environ)
    supervise(
        job, node, notes=notes, batch_job=batch.of_step(step, environ), slurm=slurm, gpus=gpus, parent_fd=parent_fd
    )


def supervise(
    job: Job,
    node: Node,
    *,
    notes: Iterable[Line] = (),
    commands: Mapping[str, Sequence[str]] = COMMANDS,
    batch_job: batch.BatchJob | None = None,
    slurm: SlurmDesk | None = None,
    gpus: int | None = None,
    parent_fd: int | None = None,
) -> NoReturn:
    """Start the children, watch them, and leave by os._exit with the node's code. Main thread only.

    `slurm` None: there is nobody to ask. `gpus`: how many the node has to have, if anybody has said. `parent_fd`:
    see parent.take.
    """
    setup("daemon", node.name, job.settings.logs.format, job.settings.logs.level)
    signals = Signals()
    tree.become_subreaper()
    checks = Runner(job, node, built_in(job, node, gpus))
    children = Children(commands, lambda: checks.pids)
    guard(partial(_fail, children, checks))
    code = INTERRUPTED
    try:
        if _made_local_folder(job):
            ending = batch.JobEnding(batch_job, Path(job.run_folder)) if batch_job else None
            _Shell(job, node, signals, children, checks, slurm, ending, parent_fd).loop(notes)
    except _Left as left:
        code = left.code
    except Exception:
        _fail(children, checks, current_traceback())
    finally:
        _end(children, checks, code)


def _fail(children: Children, checks: Runner, error: str) -> NoReturn:
    """A bug: this node ends, and another one can take its place."""
    log("daemon_failed", "error", error=error)
    _end(children, checks, INTERRUPTED)


def _made_local_folder(job: Job) -> bool:
    try:
        files.make_local_folder(Path(job.local_folder))
    except OSError as error:
        log("no_local_folder", "error", error=str(error))
        return False
    return True


def _end(children: Children, checks: Runner, code: int) -> NoReturn:
    """Leave nothing behind. Not by sys.exit: a late signal or a hanging thread must not change the code."""
    try:
        checks.end(CHECKS_BOUND)
        if left_behind := children.end(END_BOUND):
            log("left_behind", "error", pids=",".join(map(str, left_behind)))
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # srun is gone, and nobody reads it
                stream.flush()
        flush()
    finally:
        os._exit(code)


def _not_told(_: str, error: Exception) -> None:
    """The coordinator waits for this node's next agent instead, or until the node has been silent for too long."""
    log("not_told", "debug", error=str(error))


class _Left(Exception):
    """The machine has said Leave, or the parent is gone."""

    def __init__(self, code: int) -> None:
        self.code = code


class _Shell:
    def __init__(
        self,
        job: Job,
        node: Node,
        signals: Signals,
        children: Children,
        checks: Runner,
        slurm: SlurmDesk | None,
        ending: batch.JobEnding | None,
        parent_fd: int | None,
    ) -> None:
        self._job = job
        self._node = node
        self._signals = signals
        self._children = children
        self._checks = checks
        self._slurm = slurm
        self._ending = ending
        self._parent_fd = parent_fd
        now = clock.now()
        epoch = time.time() - now
        self._machine = DaemonMachine(job, node, now, epoch)
        begin = Begin(job, node, 0, Memory(), epoch)
        self._journal = Journal.open(Path(job.local_folder), "daemon", begin, now, journal_failed)
        self._writing: list[Background[Any]] = []
        self._looking: Background[Verdict | None] | None = None
        self._pushing: Background[None] | None = None

    def loop(self, notes: Iterable[Line]) -> NoReturn:
        """Raises _Left at the end."""
        now = clock.now()
        self._carry_out(None, self._machine.start(now), now)
        if self._ending is not None:
            self._handle(InBatchJob(self._ending.job.job_id, self._ending.job.host))
        for note in notes:
            emit(note)
        if self._node.infra_rank == 0 and not self._job.nonce:  # with one `launch` or `local` has done it
            self._write("run index", lambda: files.note_run(self._job, os.environ))
        next_tick = time.monotonic() + self._job.timeouts.heartbeat
        while True:
            self._sleep(next_tick)
            for event in self._events():
                self._handle(event)
            # After the events: an agent is not silent while its orders lie here unread.
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + self._job.timeouts.heartbeat
                self._handle(Tick())
            elif (due := self._machine.due) is not None and clock.now() >= due:
                self._handle(Tick())

    def _sleep(self, until: float) -> None:
        """Until something happens, or the time. Raises _Left when the parent is gone, and so the whole job."""
        if (wake := self._checks.wake) is not None:
            until = min(until, wake)
        bound = until - time.monotonic()
        if (due := self._machine.due) is not None:
            bound = min(bound, due - clock.now())
        if self._children.busy or self._looking is not None or (self._ending and self._ending.busy):
            bound = min(bound, SWEEP_PAUSE)
        poll = select.poll()
        for fd in (self._signals.fileno(), *self._children.filenos(), *self._checks.filenos()):
            poll.register(fd, select.POLLIN)
        if self._parent_fd is not None:
            poll.register(self._parent_fd, select.POLLIN)
        if self._parent_fd in dict(poll.poll(max(0.0, bound) * 1000)):
            log("parent_gone", "warning")
            raise _Left(INTERRUPTED)

    def _events(self) -> list[DaemonEvent]:
        signalled = [Signalled(name) for name in self._signals.take()]
        checked = self._checks.collect()
        done = [ChecksDone(checked[0].number, checked[1])] if checked else []
        answers = [SlurmAnswered(said) for said in self._slurm.collect()] if self._slurm else []
        told = self._ending.collect() if self._ending else []
        return [*signalled, *done, *answers, *told, *self._children.collect(), *self._found()]

    def _found(self) -> list[DaemonEvent]:
        """What came of the look for the run's verdict file, once it is over."""
        if self._looking is None or not self._looking.wait(0):
            return []
        looked, self._looking = self._looking, None
        verdict = files.result(looked)
        return [VerdictFileFound(verdict) if verdict else NoVerdict()]

    def _handle(self, event: DaemonEvent) -> None:
        if isinstance(event, Ordered) and isinstance(event.order, Listening):
            port = event.order.port
            self._write("address file", lambda: files.write_address(self._job, self._node, port))
        now = clock.now()
        self._carry_out(event, self._machine.handle(event, now), now)

    def _carry_out(self, event: DaemonEvent | None, todo: list[actions.DaemonAction], now: float) -> None:
        """Write the journal's line, and then carry the actions out, of which the last may be the end."""
        memory = self._machine.memory
        term = None if memory.promise == NO_PROMISE else memory.promise
        self._journal.record(now, event, todo, term=term, cycle=memory.newest)
        self._perform(todo)

    def _perform(self, todo: Iterable[actions.DaemonAction]) -> None:
        for action in todo:
            match action:
                case actions.Announce(fact):
                    emit(render(fact, self._job))
                case actions.SpawnAgent(incarnation, memory):
                    self._spawn(AGENT, incarnation, memory)
                case actions.SpawnCoordinator(incarnation, memory):
                    self._spawn(COORDINATOR, incarnation, memory)
                case actions.KillChild(child):
                    self._children.kill(child)
                case actions.Tell(order, child):
                    self._children.tell(child, order)
                case actions.CallSlurm(urgent) if self._slurm is not None:
                    self._slurm.ask(urgent)
                case actions.RunChecks(round_):
                    self._checks.begin(round_)
                case actions.Push():
                    self._push(action)
                case actions.CopyVerdict(verdict, shared, summary):
                    self._writing += files.write_verdict(self._job, verdict, shared, summary)
                case actions.LookForVerdict():
                    self._looking = self._looking or files.look_for_verdict(self._job)
                case actions.FinishFiles():
                    self._finish_files()
                case actions.KillLeftovers():
                    self._children.end(END_BOUND)
                case actions.Leave(code):
                    self._leave(code)
                case _ if self._ending is not None:
                    self._ending.perform(action)

    def _spawn(self, child: str, incarnation: int, memory: Memory) -> None:
        now = clock.now()
        begin = Begin(self._job, self._node, incarnation, memory, time.time() - now, self._machine.waited(now))
        self._children.spawn(child, begin)

    def _push(self, push: actions.Push) -> None:
        """Push the message, unless the former one is still under way."""
        if self._pushing is not None and not self._pushing.wait(0):
            return
        queue, data, bound = Keys(self._job.run_id).inbox, encode(push.message), self._job.timeouts.coordinator
        self._pushing = Background("push", lambda: store_push.push(push.host, push.port, queue, data, bound), _not_told)

    def _write(self, what: str, work: Any) -> None:
        self._writing = [piece for piece in self._writing if not piece.wait(0)]
        self._writing.append(Background(what, work, file_failed))

    def _finish_files(self) -> None:
        self._writing.append(files.publish_journals(self._job, self._node))
        for what in wait_all(self._writing, files.SHARED_BOUND):
            log("file_hangs", "warning", what=what)

    def _leave(self, code: int) -> NoReturn:
        """After a last deed, the journal has grown since it was copied. It is copied again unless the copy hangs."""
        if self._ending is not None and self._ending.used and not wait_all(self._writing, 0.0):
            self._finish_files()
        raise _Left(code)

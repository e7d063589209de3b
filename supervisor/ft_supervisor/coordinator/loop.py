"""The coordinator's main loop: feeds the machine from inbox, heartbeats and clock, and carries out its actions."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ft_supervisor.coordinator import files
from ft_supervisor.coordinator.journal_copier import JournalCopier
from ft_supervisor.coordinator.node_evidence import NodeEvidence
from ft_supervisor.coordinator.notices import Notice, Notices
from ft_supervisor.coordinator.notifier import Notifier
from ft_supervisor.coordinator.snapshot_of import spares
from ft_supervisor.coordinator.status_writer import StatusWriter
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol import actions
from ft_supervisor.core.protocol.checkpoint import CheckpointSeen
from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.core.protocol.events import (
    CloseHeld,
    CoordinatorEvent,
    Heard,
    Promised,
    Received,
    SlurmToldUs,
    StepRead,
    Tick,
    VerdictFileFound,
    VerdictWritten,
)
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.orders import Done
from ft_supervisor.journal.journal import Journal
from ft_supervisor.process import clock
from ft_supervisor.process.background import Background, wait_all
from ft_supervisor.process.link import Link
from ft_supervisor.process.log import emit, flush, log
from ft_supervisor.process.log_lines import render
from ft_supervisor.store.base import Store, StoreLost
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.pulses import dump_pulse
from ft_supervisor.store.verdicts import dump_verdict, parse_verdict

if TYPE_CHECKING:  # it imports modules that most jobs do not need
    from ft_supervisor.coordinator.exporter import Exporter

LAST_FILES_BOUND = 2.0
"""Seconds for files that are still being written at the end, before the process ends without them."""

LAST_NOTICE_BOUND = 2.0
"""Seconds for notices that are still being sent then; the verdict's was sent `close_grace` before."""

Item = Received | Promised | StepRead | CheckpointSeen | SlurmToldUs | VerdictWritten | VerdictFileFound | StoreLost
Inbox = queue.SimpleQueue[Item]


class Loop:
    """The main loop. `store` and all methods are for the main thread alone."""

    def __init__(
        self,
        job: Job,
        machine: CoordinatorMachine,
        journal: Journal,
        store: Store,
        link: Link,
        inbox: Inbox,
        exporter: Exporter | None = None,
    ) -> None:
        self._job = job
        self._keys = Keys(job.run_id)
        self._machine = machine
        self._journal = journal
        self._store = store
        self._link = link
        self._inbox = inbox
        self._exporter = exporter
        self._echoes: dict[str, int] = {}
        """The members' heartbeats by their keys, as last read."""
        self._ended = False
        self._writing: list[Background[None]] = []
        self._looking: Background[None] | None = None
        self._step: Background[None] | None = None
        self._status = StatusWriter(job, machine.node.name, inbox.put)
        self._notices = Notices(job.run_id)
        self._notifier = Notifier(job, machine.node.name)
        self._evidence = NodeEvidence(job)
        self._journal_copier = JournalCopier(journal.path, Path(job.run_folder), machine.node.name)

    def prepare(self) -> None:
        """Write the first pulse, before any agent looks for one."""
        self._handle(Tick())

    def run(self) -> NoReturn:
        """Run until Leave. Raises StoreLost, LinkClosed."""
        next_beat = time.monotonic()
        while True:
            # A beat takes time with many members, but that must not make the period longer.
            next_beat = max(next_beat + self._job.timeouts.heartbeat, time.monotonic())
            self._listen(next_beat)
            self._beat()

    def _listen(self, until: float) -> None:
        """Handle the items that come until then. A coordinator that was suspended must not count nodes as silent whose
        messages it has not read, so all items in the queue at the end are handled too, for a bounded time: a flood must
        not delay the pulse for long."""
        while (left := until - time.monotonic()) > 0:
            try:
                self._take(self._inbox.get(timeout=left))
            except queue.Empty:
                return
        bound = time.monotonic() + self._job.timeouts.heartbeat / 2
        for _ in range(self._inbox.qsize()):
            if time.monotonic() >= bound:
                return
            self._take(self._inbox.get_nowait())

    def _take(self, item: Item) -> None:
        match item:
            case StoreLost():
                raise item
            case _:
                self._handle(item)

    def _beat(self) -> None:
        """Handle heartbeats, the verdict's key, and the machine's own clock, which moves the pulse."""
        if echoes := self._moved():
            self._handle(Heard(echoes))
        if not self._ended and (data := self._store.get(self._keys.permanent_close)) is not None:
            self._end(data)
        self._handle(Tick())
        self._notify(self._notices.low(self._machine.cycle, self._spares))
        self._status.beat(self._machine, clock.now())
        self._journal_copier.beat(self._machine, clock.now())
        if self._exporter is not None:
            self._exporter.beat(clock.now())

    def _moved(self) -> tuple[tuple[int, int], ...]:
        ranks = {
            self._keys.heartbeat(member.node.infra_rank, member.incarnation, member.connection): member.node.infra_rank
            for member in self._machine.members
            if member.register is not None
        }
        values = dict(zip(ranks, self._store.counters(list(ranks)), strict=True))
        moved = ((ranks[key], value) for key, value in values.items() if value != self._echoes.get(key, 0))
        echoes = tuple(sorted(moved))  # sorted, they are short in the journal
        self._echoes = values
        return echoes

    def _end(self, data: bytes) -> None:
        self._ended = True
        self._handle(CloseHeld(parse_verdict(data)))

    def _handle(self, event: CoordinatorEvent) -> None:
        now = clock.now()
        todo = self._machine.handle(event, now)
        self._journal.record(now, event, todo, term=self._machine.term, cycle=self._machine.cycle)
        if self._exporter is not None:
            self._exporter.saw(event, todo, now)
        self._perform(todo)

    def _perform(self, todo: Iterable[actions.CoordinatorAction]) -> None:
        for action in todo:
            match action:
                case actions.Announce(fact):
                    emit(render(fact, self._machine.job))
                    self._status.news(fact)
                    self._notify(self._notices.of(fact, self._machine.cycle))
                    if (written := self._evidence.saw(fact)) is not None:
                        self._writing.append(written)
                case actions.Mail(infra_rank, incarnation, connection, message):
                    self._store.push(self._keys.mail(infra_rank, incarnation, connection), encode(message))
                case actions.Pulse():
                    self._store.set(self._keys.pulse, dump_pulse(action, time.time()))
                case actions.Tell(order):
                    self._link.send(order)
                case actions.WriteVerdict(verdict, summary):
                    self._writing.append(files.write(self._job, verdict, summary, self._inbox.put))
                case actions.ClaimClose(verdict):
                    self._end(self._store.compare_set(self._keys.permanent_close, b"", dump_verdict(verdict)))
                case actions.ReadStep():
                    if self._step is None or self._step.wait(0):
                        self._step = files.read_step(self._job, self._inbox.put)
                case actions.LookForVerdict():
                    if self._looking is None or self._looking.wait(0):
                        self._looking = files.look(self._job, self._inbox.put)
                case actions.Leave():
                    self._leave(action)

    def _notify(self, notices: Iterable[Notice]) -> None:
        if self._job.settings.notify:
            for notice in notices:
                self._notifier.send(notice)

    def _spares(self) -> int:
        return spares(self._machine, clock.now())

    def _leave(self, leave: actions.Leave) -> NoReturn:
        """Send Done and end the process with the store. Not by sys.exit, which would wait for threads."""
        self._store.get(self._keys.hello)  # once it has answered, all pushes before it on this connection have arrived
        last = [*self._status.end(self._machine, clock.now()), *self._journal_copier.end(self._machine)]
        for what in wait_all([*self._writing, *last], LAST_FILES_BOUND):
            log("file_hangs", "warning", what=what)
        if not self._notifier.flush(LAST_NOTICE_BOUND):
            log("file_hangs", "warning", what="notices")
        verdict = leave.verdict
        outcome = verdict.outcome.value if verdict else None
        log("leaving", "debug", code=leave.code, verdict=outcome, reason=leave.reason)
        flush()
        self._link.send(Done(leave.code, verdict, leave.reason))
        self._link.flush()
        os._exit(leave.code)

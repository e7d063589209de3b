"""The coordinator's process: hosts the store, feeds the machine from inbox and clock, carries out its actions.

Threads: one blocks on the inbox, one on the link to the daemon; the main one does everything else, so that a
coordinator whose main loop hangs no longer moves the lease.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from ft_supervisor.core import actions
from ft_supervisor.core.codec import CodecError, decode, encode
from ft_supervisor.core.coordinator import CoordinatorMachine
from ft_supervisor.core.events import CoordinatorEvent, Ended, Heard, Received, Tick
from ft_supervisor.core.messages import TO_COORDINATOR
from ft_supervisor.core.model import INTERRUPTED, PROTOCOL, Job, Node, Outcome, Verdict
from ft_supervisor.core.orders import Begin, Closed, Done, Listening
from ft_supervisor.observe import verdict_file
from ft_supervisor.observe.background import Background, wait_all
from ft_supervisor.process.child import enter_child
from ft_supervisor.process.link import Link, LinkClosed
from ft_supervisor.process.log import emit, log, setup
from ft_supervisor.process.ports import PortsTaken, bind_first
from ft_supervisor.store.base import Store, StoreLost
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.verdicts import dump_verdict, parse_verdict

BEGIN_BOUND = 30.0
INBOX_POLL = 60.0
"""Seconds of one blocking pop; a message ends it at once."""
FILE_BOUND = 2.0
CRASHED = 70

Inbox = queue.SimpleQueue[Received | StoreLost]


def main() -> NoReturn:
    """Be the coordinator until the machine says Leave, or the daemon is gone."""
    try:
        link = enter_child()
        begin = link.receive(BEGIN_BOUND)
        if not isinstance(begin, Begin):
            os._exit(CRASHED)
        setup("coordinator", begin.node.name)
        threading.Thread(target=_watch_daemon, args=(link,), name="link", daemon=True).start()
        _serve(begin.job, begin.node, link)
    except LinkClosed:
        os._exit(INTERRUPTED)  # the daemon is dead, and its node with it
    except Exception:
        log("coordinator_failed", "error", error=traceback.format_exc())
        os._exit(CRASHED)


def _serve(job: Job, node: Node, link: Link) -> NoReturn:
    # torch's server looks up every peer's name, for its log alone, on the one thread that serves everybody: a lost
    # packet would stop it for a second. Without any attempt only /etc/hosts is asked.
    os.environ["RES_OPTIONS"] = "attempts:0"
    from ft_supervisor.store import tcp  # takes seconds (torch): the daemon's death is noticed meanwhile

    try:
        sock = bind_first("", job.ports)
    except PortsTaken as error:
        _give_up(job, link, str(error))
    port = sock.getsockname()[1]
    store = tcp.serve(sock)
    hello = {"run_id": job.run_id, "protocol": PROTOCOL, "infra_rank": node.infra_rank}
    store.set(Keys(job.run_id).hello, json.dumps(hello).encode())
    inbox: Inbox = queue.SimpleQueue()
    pops = (store.clone(), Keys(job.run_id).inbox, inbox)
    threading.Thread(target=_read_inbox, args=pops, name="inbox", daemon=True).start()
    log("listening", port=port)
    link.send(Listening(port))
    Shell(job, store, link, inbox).loop()


def _give_up(job: Job, link: Link, reason: str) -> NoReturn:
    """Nobody will ever reach us: only the file can tell the other nodes."""
    verdict = Verdict(Outcome.INTERRUPTED, reason)
    link.send(Closed(verdict))
    _write_file(job, verdict).wait(FILE_BOUND)
    _exit(link, verdict.exit_code, verdict, reason)


def _watch_daemon(link: Link) -> None:
    """A daemon has nothing to say to its coordinator after Begin, but its death is heard here."""
    try:
        while True:
            link.receive(None)
    except LinkClosed:
        os._exit(INTERRUPTED)


def _read_inbox(store: Store, name: str, inbox: Inbox) -> None:
    while True:
        try:
            data = store.pop(name, INBOX_POLL)
        except StoreLost as error:
            inbox.put(error)
            return
        if data is None:
            continue
        try:
            inbox.put(Received(decode(data, TO_COORDINATOR)))
        except CodecError as error:
            log("message_dropped", "warning", error=str(error))


class Shell:
    """The main loop. `store` is for its thread alone."""

    def __init__(self, job: Job, store: Store, link: Link, inbox: Inbox) -> None:
        self._job = job
        self._keys = Keys(job.run_id)
        self._store = store
        self._link = link
        self._inbox = inbox
        self._machine = CoordinatorMachine(job, time.monotonic())
        self._counters: dict[int, int] = {}
        self._ended = False
        self._writing: list[Background[Verdict]] = []

    def loop(self) -> NoReturn:
        """Until Leave. Raises StoreLost, LinkClosed."""
        next_beat = time.monotonic()
        while True:
            for event in self._received(next_beat):
                self._handle(event)
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + self._job.timeouts.heartbeat
                self._beat()

    def _received(self, until: float) -> list[Received]:
        """What lies in the inbox, after waiting for a first message until then."""
        found: list[Received] = []
        while True:
            try:
                item = self._inbox.get(timeout=0 if found else max(0.0, until - time.monotonic()))
            except queue.Empty:
                return found
            if isinstance(item, StoreLost):
                raise item
            found.append(item)
            if len(found) >= 1000:  # a flood must not keep the heartbeat waiting
                return found

    def _beat(self) -> None:
        """The lease, who is alive, whether somebody has ended the job, and the machine's own clock."""
        self._store.add(self._keys.lease(self._machine.term), 1)
        if moved := self._moved():
            self._handle(Heard(moved))
        if not self._ended and (data := self._store.get(self._keys.permanent_close)) is not None:
            self._end(data)
        self._handle(Tick())

    def _moved(self) -> frozenset[int]:
        ranks = [member.node.infra_rank for member in self._machine.members if not member.gone]
        values = self._store.counters([self._keys.heartbeat(rank) for rank in ranks])
        moved = frozenset(
            rank for rank, value in zip(ranks, values, strict=True) if value != self._counters.get(rank, 0)
        )
        self._counters = dict(zip(ranks, values, strict=True))
        return moved

    def _end(self, data: bytes) -> None:
        self._ended = True
        self._handle(Ended(parse_verdict(data)))

    def _handle(self, event: CoordinatorEvent) -> None:
        self._perform(self._machine.handle(event, time.monotonic()))

    def _perform(self, todo: Iterable[actions.CoordinatorAction]) -> None:
        for action in todo:
            match action:
                case actions.Log():
                    emit(action)
                case actions.Mail(infra_rank, incarnation, message):
                    self._store.push(self._keys.mail(infra_rank, incarnation), encode(message))
                case actions.Conclude(verdict):
                    self._end(self._store.compare_set(self._keys.permanent_close, b"", dump_verdict(verdict)))
                case actions.Record(verdict):
                    self._record(verdict)
                case actions.Leave(code, verdict, reason):
                    self._leave(code, verdict, reason)

    def _record(self, verdict: Verdict) -> None:
        self._link.send(Closed(verdict))
        self._writing.append(_write_file(self._job, verdict))

    def _leave(self, code: int, verdict: Verdict | None, reason: str) -> NoReturn:
        self._store.get(self._keys.hello)  # answered: so are all pushes on this connection before it
        for what in wait_all(self._writing, FILE_BOUND):
            log("file_hangs", "warning", what=what)
        _exit(self._link, code, verdict, reason)


def _exit(link: Link, code: int, verdict: Verdict | None, reason: str) -> NoReturn:
    """Say Done and end, the store with us; not by sys.exit, which would wait for threads."""
    log("leaving", code=code, verdict=verdict.outcome.value if verdict else None, reason=reason)
    link.send(Done(code, verdict, reason))
    link.flush()
    os._exit(code)


def _write_file(job: Job, verdict: Verdict) -> Background[Verdict]:
    folder = Path(job.run_folder)
    return Background("verdict file", lambda: verdict_file.write(folder, verdict, job.run_id, job.nonce), _file_failed)


def _file_failed(what: str, error: Exception) -> None:
    log("file_failed", "warning", what=what, error=f"{type(error).__name__}: {error}")

"""The coordinator's process: hosts the store, whether in charge or not, and runs the machine's loop beside it.

Threads: one blocks on the inbox, one on the link to the daemon; the main one does everything else, so that a
coordinator whose main loop hangs no longer moves the pulse.
"""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ft_supervisor.coordinator import listen
from ft_supervisor.coordinator.loop import Inbox, Loop
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol import events
from ft_supervisor.core.protocol.codec import CodecError, decode
from ft_supervisor.core.protocol.events import Received
from ft_supervisor.core.protocol.messages import TO_COORDINATOR
from ft_supervisor.core.protocol.model import INTERRUPTED
from ft_supervisor.core.protocol.orders import Begin, Listening, Promise, SlurmSaid
from ft_supervisor.core.protocol.refusals import Refusals
from ft_supervisor.journal.journal import Journal
from ft_supervisor.process import clock
from ft_supervisor.process.child import enter_child
from ft_supervisor.process.link import Link, LinkClosed
from ft_supervisor.process.log import current_traceback, flush, journal_failed, log, setup
from ft_supervisor.process.ports import PortsTaken
from ft_supervisor.process.threads import guard
from ft_supervisor.store import hello
from ft_supervisor.store.base import Store, StoreLost
from ft_supervisor.store.keys import Keys

if TYPE_CHECKING:
    from ft_supervisor.coordinator.exporter import Exporter

BEGIN_BOUND = 30.0
INBOX_POLL = 60.0
"""Seconds of one blocking pop; a message ends it at once."""
CRASHED = 70
"""The exit code after which the daemon tries again with a new coordinator."""


def main() -> NoReturn:
    """Run a coordinator until the machine's Leave, or the daemon's death."""
    try:
        link = enter_child()
        begin = link.receive(BEGIN_BOUND)
        if not isinstance(begin, Begin):
            os._exit(CRASHED)
        setup("coordinator", begin.node.name, begin.job.settings.logs.format, begin.job.settings.logs.level)
        guard(_fail)
        inbox: Inbox = queue.SimpleQueue()
        threading.Thread(target=_read_link, args=(link, inbox), name="link", daemon=True).start()
        _serve(begin, link, inbox)
    except LinkClosed:
        os._exit(INTERRUPTED)  # the daemon is dead, and its node with it
    except PortsTaken as error:
        log("cannot_listen", "error", error=str(error))
    except Exception:
        _fail(current_traceback())
    flush()
    os._exit(CRASHED)


def _fail(error: str) -> NoReturn:
    """Log a bug and exit: the daemon starts another coordinator, and another candidate takes over."""
    log("coordinator_failed", "error", error=error)
    flush()
    os._exit(CRASHED)


def _serve(begin: Begin, link: Link, inbox: Inbox) -> NoReturn:
    # torch's server looks up every peer's name, for its log alone, on the one thread that serves all clients: a lost
    # packet would stop it for a second. Without any attempt only /etc/hosts is asked.
    os.environ["RES_OPTIONS"] = "attempts:0"
    job, node, keys, began = begin.job, begin.node, Keys(begin.job.run_id), clock.now()
    listen.bind(job).close()  # fails early, before the slow import, when no port is free
    from ft_supervisor.store import tcp  # takes seconds (torch): the daemon's death is noticed meanwhile

    sock = listen.bind(job)
    listen.tell(job, node, sock)
    port = sock.getsockname()[1]
    store = tcp.serve(sock)
    now = clock.now()
    begin = replace(begin, waited=begin.waited + now - began)  # the account of the job's time has the import, too
    machine = CoordinatorMachine(job, node, begin.incarnation, begin.memory, now, begin.epoch, begin.waited)
    journal = Journal.open(Path(job.local_folder), f"coordinator-{begin.incarnation}", begin, now, journal_failed)
    loop = Loop(job, machine, journal, store, link, inbox, _exporter(machine, now))
    loop.prepare()
    # Only now, so that an agent that finds the hello also finds a pulse.
    store.set(keys.policy, job.policy.encode())
    store.set(keys.hello, hello.dump(job, node.infra_rank))
    threading.Thread(target=_read_inbox, args=(store.clone(), keys.inbox, inbox), name="inbox", daemon=True).start()
    log("listening", "debug", port=port)
    link.send(Listening(port))
    loop.run()


def _exporter(machine: CoordinatorMachine, now: float) -> Exporter | None:
    """Return the exporter of metrics with its server started; None if the policy wants none, or it cannot start."""
    if machine.job.settings.metrics.listen == "off":
        return None
    try:
        from ft_supervisor.coordinator.exporter import Exporter

        return Exporter(machine, now)
    except Exception as error:  # no thread can be started, or a package is missing: neither may end a training
        log("metrics_failed", "warning", error=f"{type(error).__name__}: {error}")
        return None


def _read_link(link: Link, inbox: Inbox) -> None:
    """Read the daemon's orders, and notice its death whatever the main loop does."""
    try:
        while True:
            match link.receive(None):
                case Promise(term):
                    inbox.put(events.Promised(term))
                case SlurmSaid() as said:
                    inbox.put(events.SlurmToldUs(said))
                case _:
                    pass  # other orders are not for a coordinator
    except LinkClosed:
        os._exit(INTERRUPTED)


def _read_inbox(store: Store, name: str, inbox: Inbox) -> None:
    refusals = Refusals()
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
            if (more := refusals.due("message", clock.now())) is not None:
                log("message_dropped", "warning", error=str(error), more=more or None)

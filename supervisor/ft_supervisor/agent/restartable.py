"""Exchanges messages with the workers that can be parked, and checks whether one that has left its function is clean.

A worker introduces itself when its script calls a restartable function (ft_supervisor.worker). Its messages go into
the machine of core/agent/node_workers.py, which decides what becomes of it. All times in seconds of process.clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ft_supervisor.agent import leftovers
from ft_supervisor.agent.control import Control, Said
from ft_supervisor.agent.worker_evidence import WorkerEvidence
from ft_supervisor.core.agent.growth import Growth, Usage
from ft_supervisor.core.agent.node_workers import NodeWorkers, WorkersState
from ft_supervisor.core.protocol.events import AgentEvent, WorkerProgressed
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.core.words import one_line
from ft_supervisor.process import tree
from ft_supervisor.process.log import log

_ENDING = 1.0
"""Seconds in which the processes that the function has started may still end after it."""
_AGAIN = 0.05
"""Seconds between two looks."""


@dataclass(eq=False)
class _Peer:
    """A process that has called a restartable function. `root`: what the agent has started, which may be a shell around
    it. `looks_until`: it has left its function, and is looked at until then; None otherwise."""

    root: int
    pid: int
    beside: leftovers.Known
    growth: Growth
    kept: frozenset[int] = frozenset()
    looks_until: float | None = None
    waits: bool = False
    """Whether it has sent `parked` before the look was over."""
    found: str = ""
    """The reason why it is killed, for people; "" where it is not, or is late."""
    told: bool = False
    """Whether the reason is in the log."""


class Restartable:
    """The workers that can be parked, by local rank. For the main thread."""

    def __init__(self, machine: NodeWorkers, control: Control, evidence: WorkerEvidence, max_growth: int) -> None:
        """`max_growth`: bytes; see Growth."""
        self._machine = machine
        self._control = control
        self._evidence = evidence
        self._max_growth = max_growth
        self._peers: dict[int, _Peer] = {}
        self._cycle = Cycle(0, 0)
        self._port = 0
        self._progressed = False
        self.due: float | None = None
        """When to look again; None where no look is due."""
        self._events: list[AgentEvent] = []

    # -- orders to workers

    def begin(self, run: Run) -> None:
        """Note that a cycle's workers are about to be started."""
        self._cycle, self._port, self._progressed = run.cycle, run.master_port, False

    def run(self, local_rank: int, pid: int, env: Mapping[str, str]) -> None:
        """Have a parked worker, of the process `pid`, take up the present cycle."""
        peer = self._peers[local_rank]
        peer.looks_until, peer.waits, peer.found = None, False, ""
        self._send(pid, "run", env=dict(env))

    def abort(self, pid: int) -> None:
        """Ask a worker to leave its function."""
        self._send(pid, "abort")

    def release(self, pid: int) -> None:
        """Let a worker return from its function."""
        self._send(pid, "release")

    def _send(self, pid: int, kind: str, **fields: object) -> None:
        """Send a message. A worker that cannot be reached is not parked in time, and is killed then."""
        self._control.send(pid, {"type": kind, "cycle": str(self._cycle), **fields})

    # -- messages of workers

    def hear(self, local_rank: int, said: Said, now: float) -> None:
        """Take a message of this rank's worker. A message of another cycle is dropped; the message that a spare's
        worker waits in its restartable function has no cycle."""
        message = said.message
        if message is None:
            return  # the end of its process will tell more than that of its connection
        if message["type"] == "hello":
            if message.get("kind") == "restartable":
                self._greet(local_rank, said)
            return
        peer = self._peers.get(local_rank)
        if peer is None or peer.pid != said.sender:
            return
        if (message["type"], message.get("cycle")) == ("parked", ""):
            self._machine.wait(local_rank)
            log("spare_ready", "debug", local_rank=local_rank)
        elif message["type"] == "fatal":
            self._spoilt(local_rank, peer, message)
        elif message.get("cycle") == str(self._cycle):
            self._take(local_rank, peer, message, now)

    def _greet(self, local_rank: int, said: Said) -> None:
        try:
            beside = leftovers.beside(said.pid, said.sender)
        except OSError as error:
            log("not_restartable", "warning", local_rank=local_rank, reason=str(error))
            return
        self._peers[local_rank] = _Peer(said.pid, said.sender, beside, Growth(self._max_growth))
        self._machine.restartable(local_rank)

    def _take(self, local_rank: int, peer: _Peer, message: Mapping[str, Any], now: float) -> None:
        match message["type"]:
            case "progress" if not self._progressed:
                self._progressed = True
                self._events.append(WorkerProgressed(self._cycle))
            case "failed" if self._machine.state is WorkersState.RUNNING:
                self._machine.fail(self._failure(local_rank, message))
            case "completed":
                self._machine.returned(local_rank)
            case "quiesced":
                self._quiesced(local_rank, peer, message, now)
            case "parked" if peer.looks_until is not None:
                peer.waits = True
            case "parked":
                self._machine.park(local_rank)

    def _spoilt(self, local_rank: int, peer: _Peer, message: Mapping[str, Any]) -> None:
        """It ends by itself, with its own exit code. One that is parked may take seconds for that: it is killed."""
        peer.found, peer.waits = f"it cannot be used again: {_text(message, 'reason')}", False
        if not self._machine.spoil(local_rank):
            log("not_parked", "warning", local_rank=local_rank, pid=peer.pid, why=one_line(peer.found))

    def _failure(self, local_rank: int, message: Mapping[str, Any]) -> Any:
        phase, text = _text(message, "phase"), _text(message, "message")
        where = "" if phase == "function" else f"in {phase}"
        return self._evidence.raised(local_rank, _text(message, "exception"), text, where)

    def _quiesced(self, local_rank: int, peer: _Peer, message: Mapping[str, Any], now: float) -> None:
        threads, kept = (_list(message, name) for name in ("threads", "kept"))
        found = f"threads {', '.join(map(str, threads))}" if threads else ""  # the worker has waited for their end
        used = (_number(message, name) for name in ("memory", "gpu_memory", "thread_count"))
        if found := found or peer.growth.after_cycle(Usage(*used)):
            self._judge(local_rank, peer, found)
            return
        peer.kept = frozenset(pid for pid in kept if isinstance(pid, int))
        peer.looks_until, peer.waits = now + _ENDING, False
        self.due = now  # `look` comes next, and sees all that have left their functions by then in one scan of /proc

    # -- the agent's own look

    def look(self, now: float) -> None:
        """Look at those that have left their functions and were not clean yet, if it is time. Each look at /proc may
        take tens of milliseconds: it is made once for all of them."""
        if self.due is None or now < self.due:
            return
        self.due = None
        peers = {local_rank: peer for local_rank, peer in self._peers.items() if peer.looks_until is not None}
        for local_rank, found in self._found(peers).items():
            until = peers[local_rank].looks_until
            if found and until is not None and now < until:
                self.due = now + _AGAIN
            else:
                self._looked(local_rank, peers[local_rank], found)

    def _looked(self, local_rank: int, peer: _Peer, found: str) -> None:
        peer.looks_until = None
        self._judge(local_rank, peer, found)
        if peer.waits and not found:
            self._machine.park(local_rank)

    def _found(self, peers: Mapping[int, _Peer]) -> dict[int, str]:
        """Return what each of these has left, "" for nothing."""
        try:
            processes = tree.scan()
        except OSError as error:
            return dict.fromkeys(peers, f"unknown processes ({error})")
        connected = leftovers.connected_to(self._port, [peer.pid for peer in peers.values()])
        found = {}
        for local_rank, peer in peers.items():
            found[local_rank] = "a connection to the cycle's store" if peer.pid in connected else ""
            if strays := leftovers.strays(processes, peer.root, peer.pid, peer.beside, peer.kept):
                found[local_rank] = f"processes {strays}"
        return found

    def _judge(self, local_rank: int, peer: _Peer, found: str) -> None:
        if found:
            peer.found = f"left behind: {found}"
        self._machine.quiesced(local_rank, found)

    # -- their end

    def gone(self, local_rank: int) -> None:
        """Forget this rank's process: it has exited, or another one takes its place."""
        self._peers.pop(local_rank, None)

    def drop(self) -> None:
        """Note that none of them is parked any more: see actions.DropParked."""
        for peer in self._peers.values():
            peer.found = "all workers are to be new processes"

    def tell_killed(self, local_ranks: Iterable[int], late: str) -> None:
        """Log why these workers are killed, once for each that could be parked. `late`: the reason where nothing else
        is known, "" for none."""
        for local_rank in local_ranks:
            peer = self._peers.get(local_rank)
            if peer is not None and not peer.told and (why := peer.found or late):
                peer.told = True
                log("not_parked", "warning", local_rank=local_rank, pid=peer.root, why=one_line(why))

    def events(self) -> list[AgentEvent]:
        """Return what is to be reported since the last call."""
        events, self._events = self._events, []
        return events


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""


def _number(message: Mapping[str, Any], name: str) -> int:
    value = message.get(name)
    return value if isinstance(value, int) else 0


def _list(message: Mapping[str, Any], name: str) -> list[Any]:
    value = message.get(name)
    return value if isinstance(value, list) else []

"""Talks with the workers that can be parked, and looks for itself whether one that has left its function is clean.

A worker introduces itself when its script calls a restartable function (ft_supervisor.worker). Its messages go into
the machine of core/agent/node_workers.py, which decides what becomes of it. All times in seconds of process.clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ft_supervisor.agent import leftovers
from ft_supervisor.agent.control import Control, Said
from ft_supervisor.agent.worker_evidence import WorkerEvidence
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
    kept: frozenset[int] = frozenset()
    looks_until: float | None = None
    waits: bool = False
    """Whether it has sent `parked` while it was looked at."""
    found: str = ""
    """What it has left, or why else it is killed."""


class Restartable:
    """The workers that can be parked, by local rank. For the main thread."""

    def __init__(self, machine: NodeWorkers, control: Control, evidence: WorkerEvidence) -> None:
        self._machine = machine
        self._control = control
        self._evidence = evidence
        self._peers: dict[int, _Peer] = {}
        self._cycle = Cycle(0, 0)
        self._port = 0
        self._progressed = False
        self.due: float | None = None
        """When to look again; None: when something comes."""
        self._events: list[AgentEvent] = []

    # -- what they are told

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
        """One that cannot be reached any more is killed in the end, as it is not parked in time."""
        self._control.send(pid, {"type": kind, "cycle": str(self._cycle), **fields})

    # -- what they do

    def hear(self, local_rank: int, said: Said, now: float) -> None:
        """Take what the worker of this rank has sent. What is of another cycle is dropped. Only that a spare's worker
        waits in its restartable function is of none."""
        message = said.message
        if message is None:
            return  # of a connection's end the process's own end tells more
        if message["type"] == "hello":
            if message.get("kind") == "restartable":
                self._greet(local_rank, said)
            return
        peer = self._peers.get(local_rank)
        if peer is None or peer.pid != said.sender:
            return
        if (message["type"], message.get("cycle")) == ("parked", ""):
            self._machine.wait(local_rank)
            log("spare_ready", local_rank=local_rank)
        elif message.get("cycle") == str(self._cycle):
            self._take(local_rank, peer, message, now)

    def _greet(self, local_rank: int, said: Said) -> None:
        try:
            beside = leftovers.beside(said.pid, said.sender)
        except OSError as error:
            log("not_restartable", "warning", local_rank=local_rank, reason=str(error))
            return
        self._peers[local_rank] = _Peer(said.pid, said.sender, beside)
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
            case "fatal":
                why = one_line(f"it cannot be used again: {_text(message, 'reason')}")
                log("not_parked", "warning", local_rank=local_rank, pid=peer.pid, why=why)

    def _failure(self, local_rank: int, message: Mapping[str, Any]) -> Any:
        phase, text = _text(message, "phase"), _text(message, "message")
        where = "" if phase == "function" else f"in {phase}: "
        return self._evidence.raised(local_rank, _text(message, "exception"), f"{where}{text}")

    def _quiesced(self, local_rank: int, peer: _Peer, message: Mapping[str, Any], now: float) -> None:
        threads, kept = (_list(message, name) for name in ("threads", "kept"))
        if threads:  # it has waited for them itself
            self._judge(local_rank, peer, f"threads {', '.join(map(str, threads))}")
            return
        peer.kept = frozenset(pid for pid in kept if isinstance(pid, int))
        peer.looks_until, peer.waits = now + _ENDING, False
        self.due = now  # `look` comes next, and sees all that have left their functions by then in one scan of /proc

    # -- what is seen of them

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
        peer.found = f"left behind: {found}" if found else ""
        self._machine.quiesced(local_rank, found)

    # -- what becomes of them

    def gone(self, local_rank: int) -> None:
        """Forget this rank's process: it has exited, or another one takes its place."""
        self._peers.pop(local_rank, None)

    def why_killed(self, local_rank: int, late: str) -> str:
        """Return why a worker that could be parked is killed, for people; "" for any other worker. `late`: the reason
        where it has left nothing that was seen."""
        peer = self._peers.get(local_rank)
        return one_line(peer.found or late) if peer is not None else ""

    def events(self) -> list[AgentEvent]:
        """Return what is to be reported since the last call."""
        events, self._events = self._events, []
        return events


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""


def _list(message: Mapping[str, Any], name: str) -> list[Any]:
    value = message.get(name)
    return value if isinstance(value, list) else []

"""Runs a small job of the real machines in one thread, without faults of the network, and records each machine.

It has only what the machines need to run; tests/simulation tests them under faults.
"""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.history.stories import JOB, NODES, Recorder, must_not_fail

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.protocol import actions as do
from ft_supervisor.core.protocol import events as tell
from ft_supervisor.core.protocol.model import Failure, Memory, Verdict
from ft_supervisor.core.protocol.orders import Begin, Done, Terminate, VerdictDecided
from ft_supervisor.journal.journal import Journal

PORT = 4711


@dataclass
class Host:
    """The state of one node: its processes by kind, its agent's connection, and the contents of its coordinator's
    store."""

    rank: int
    folder: Path
    parts: dict[str, Recorder] = field(default_factory=dict)
    calls: tuple[int, ...] = ()
    link: int | None = None
    connection: int = 0
    running: Any = None
    pulse: tuple[int, int | None, int] = (0, None, 0)
    echoes: dict[int, int] = field(default_factory=dict)
    code: int | None = None


class SmallJob:
    """A job of three nodes, two of them active. Call `beat` until `over`."""

    def __init__(self, folder: Path) -> None:
        self.now = 54321.123456789
        self.hosts = [Host(node.infra_rank, folder / node.name) for node in NODES]
        self.file: Verdict | None = None
        self._queue: deque[tuple[Host, Recorder, Any]] = deque()
        for host in self.hosts:
            daemon = DaemonMachine(JOB, NODES[host.rank], self.now)
            self._record(host, "daemon", "daemon", daemon, Begin(JOB, NODES[host.rank], 0, Memory()))

    @property
    def over(self) -> bool:
        return all(host.code is not None for host in self.hosts)

    def active(self) -> list[Host]:
        return [host for host in self.hosts if host.running]

    def finish_workers(self, host: Host, *failures: Failure) -> None:
        """Let the workers exit."""
        run, host.running = host.running, host.running if failures else None
        self._post(host, "agent", tell.WorkersExited(run.cycle, failures))

    def kill(self, host: Host, kind: str) -> None:
        """Kill the agent or the coordinator, as SIGKILL would."""
        del host.parts[kind]
        if kind == "agent":
            host.link, host.connection, host.running = None, 0, None
        self._post(host, "daemon", tell.ChildExited(kind, "SIGKILL"))

    def beat(self) -> None:
        """Let half a second pass."""
        self.now += 0.4987654321
        for host in self.hosts:
            if "agent" in host.parts:
                self._look(host)
                self._post(host, "agent", tell.Tick())
            if "coordinator" in host.parts:
                if host.echoes:
                    self._post(host, "coordinator", tell.Heard(tuple(sorted(host.echoes.items()))))
                    host.echoes = {}
                self._post(host, "coordinator", tell.Tick())
            self._post(host, "daemon", tell.Tick())
        self._work()

    def _look(self, host: Host) -> None:
        if host.link is None:
            for rank in host.calls:
                if "coordinator" in self.hosts[rank].parts:
                    host.link, host.connection = rank, host.connection + 1
                    round_ = self.hosts[rank].pulse[0]
                    connected = tell.Connected(rank, host.connection, round_, self.now - 0.001, PORT)
                    return self._post(host, "agent", connected)
        elif "coordinator" not in self.hosts[host.link].parts:
            host.link = None
            self._post(host, "agent", tell.Disconnected("connection reset", silent=False))
        else:
            pulse = self.hosts[host.link].pulse
            self._post(host, "agent", tell.Looked(self.now - 0.002, *pulse))
            self.hosts[host.link].echoes[host.rank] = pulse[0]

    # -- what the machines want

    def _post(self, host: Host, kind: str, event: Any) -> None:
        if kind in host.parts:
            self._queue.append((host, host.parts[kind], event))

    def _work(self) -> None:
        while self._queue:
            host, one, event = self._queue.popleft()
            if one not in host.parts.values():
                continue
            kind = next(kind for kind, part in host.parts.items() if part is one)
            self.now += 0.000123456789
            one.now = self.now
            for action in one.tell(event, 0.0):
                self._do(host, kind, action)

    def _record(self, host: Host, kind: str, name: str, machine: Any, begin: Begin) -> None:
        journal = Journal.open(host.folder, name, begin, self.now, must_not_fail)
        host.parts[kind] = Recorder(machine, journal, self.now)
        if kind != "coordinator":
            for action in host.parts[kind].start():
                self._do(host, kind, action)

    def _do(self, host: Host, kind: str, action: Any) -> None:
        node = NODES[host.rank]
        match action:
            case do.SpawnAgent(incarnation, memory):
                agent = AgentMachine(JOB, node, incarnation, memory, self.now)
                self._record(host, "agent", f"agent-{incarnation}", agent, Begin(JOB, node, incarnation, memory))
            case do.SpawnCoordinator(incarnation, memory):
                waited = host.parts["daemon"].machine.waited(self.now)
                machine = CoordinatorMachine(JOB, node, incarnation, memory, self.now, waited=waited)
                begin = Begin(JOB, node, incarnation, memory, waited=waited)
                self._record(host, "coordinator", f"coordinator-{incarnation}", machine, begin)
                self._post(host, "coordinator", tell.Tick())
            case do.KillChild(child):
                self.kill(host, child)
            case do.Tell(order) if kind != "daemon":
                self._post(host, "daemon", tell.Ordered(kind, order))
            case do.Tell(Terminate(reason)):
                self._post(host, "agent", tell.Terminated(reason))
            case do.Leave(code, verdict, reason) if kind != "daemon":
                self._post(host, "daemon", tell.Ordered(kind, Done(code, verdict, reason)))
                del host.parts[kind]
                self._post(host, "daemon", tell.ChildExited(kind, "exit code 0"))
            case do.Leave(code):
                host.code = code
                host.parts.clear()
            case _ if kind == "agent":
                self._do_agent(host, action)
            case _ if kind == "coordinator":
                self._do_coordinator(host, action)

    def _do_agent(self, host: Host, action: Any) -> None:
        match action:
            case do.Dial(candidates):
                host.calls, host.link = candidates, None
            case do.Send(message) if host.link is not None:
                self._post(self.hosts[host.link], "coordinator", tell.Received(message))
            case do.Start(run):
                host.running = run
            case do.StopWorkers(cycle):
                host.running = None
                self._post(host, "agent", tell.WorkersGone(cycle, PORT))

    def _do_coordinator(self, host: Host, action: Any) -> None:
        match action:
            case do.Pulse(round_, term, lease):
                host.pulse = (round_, term, lease)
            case do.Mail(rank, _, connection, message):
                if (self.hosts[rank].link, self.hosts[rank].connection) == (host.rank, connection):
                    self._post(self.hosts[rank], "agent", tell.Mailed(message))
            case do.Tell(VerdictDecided() as order):
                self._post(host, "daemon", tell.Ordered("coordinator", order))
            case do.WriteVerdict(verdict):
                self.file = self.file or verdict
                self._post(host, "coordinator", tell.VerdictWritten(self.file))
            case do.ClaimClose(verdict):
                self._post(host, "coordinator", tell.CloseHeld(verdict))

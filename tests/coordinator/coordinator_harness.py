"""Real coordinators with their real stores; the test acts as their daemons and, through `Agents`, as all agents."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Pulse
from ft_supervisor.core.protocol.codec import decode, encode
from ft_supervisor.core.protocol.model import Cycle, Job, Memory, Node, Timeouts, Verdict
from ft_supervisor.core.protocol.orders import Alive, AskSlurm, Listening, Order
from ft_supervisor.process.link import Link
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.pulses import parse_pulse
from ft_supervisor.store.tcp import connect
from ft_supervisor.store.verdicts import parse_verdict

BOUND = 120.0
RUN_ID = "7.0.0"
KEYS = Keys(RUN_ID)

T = TypeVar("T")


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait within BOUND until the condition holds."""
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline, f"this did not come: {what}"
        time.sleep(0.01)


class Agents:
    """The agents that are connected to one store, each of incarnation 1. They write back every round that they read."""

    def __init__(self, host: str, port: int) -> None:
        self.store = connect(host, port, BOUND)
        self._echoing = connect(host, port, BOUND)
        self._connections: dict[int, int] = {}
        self._serial = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._echo)
        self._thread.start()

    def close(self) -> None:
        """Send no more heartbeats."""
        self._stop.set()
        self._thread.join(BOUND)
        assert not self._thread.is_alive()

    def register(
        self, infra_rank: int, memory: Memory, *, connection: int = 1, running: Cycle | None = None
    ) -> messages.Register:
        """Send a node's first message on a new connection, or its promise; its port is 20100 + infra_rank."""
        node = Node(infra_rank, f"n{infra_rank}", f"127.0.0.{infra_rank + 1}")
        self._serial += 1
        round_, port = self.pulse().round, 20100 + infra_rank
        register = messages.Register(node, 1, connection, round_, port, running, memory, self._serial)
        self._connections = {**self._connections, infra_rank: connection}
        self.say(register)
        return register

    def say(self, message: messages.ToCoordinator) -> None:
        """Send a message to the inbox."""
        self.store.push(KEYS.inbox, encode(message))

    def mail(self, infra_rank: int, kind: type[T]) -> T:
        """Return the next mail of this kind; others before it are dropped."""
        queue = KEYS.mail(infra_rank, 1, self._connections[infra_rank])
        deadline = time.monotonic() + BOUND
        while (left := deadline - time.monotonic()) > 0:
            if (data := self.store.pop(queue, left)) is not None:
                message = decode(data, messages.TO_AGENT)
                if isinstance(message, kind):
                    return message
        raise AssertionError(f"no {kind.__name__} came for {infra_rank}")

    def pulse(self) -> Pulse:
        """Return the pulse in the store."""
        return parse_pulse(self.store.get(KEYS.pulse))

    def close_key(self) -> Verdict | None:
        """Return the value of `permanent_close`."""
        data = self.store.get(KEYS.permanent_close)
        return None if data is None else parse_verdict(data)

    def _echo(self) -> None:
        while not self._stop.wait(0.02):
            try:
                round_ = parse_pulse(self._echoing.get(KEYS.pulse)).round
                for infra_rank, connection in self._connections.items():
                    self._echoing.set(KEYS.heartbeat(infra_rank, 1, connection), str(round_).encode())
            except ConnectionError:  # the coordinator was killed, or has left
                return


@dataclass
class Coordinator:
    """The process, and our end of its link."""

    process: subprocess.Popen[bytes]
    link: Link
    job: Job
    host: str
    stderr: Path
    _connected: list[Agents] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Return the run's folder."""
        return Path(self.job.run_folder)

    def says(self, kind: type[T]) -> T:
        """Return its next order to its daemon, signs of life excepted."""
        deadline = time.monotonic() + BOUND
        order: Order | None = None
        while (left := deadline - time.monotonic()) > 0 and (order is None or isinstance(order, Alive | AskSlurm)):
            order = self.link.receive(left)
        assert isinstance(order, kind), f"{order}\n{self.stderr.read_text()}"
        return order

    def alive(self) -> Alive:
        """Return its next sign of life."""
        order = self.link.receive(BOUND)
        assert isinstance(order, Alive), order
        return order

    def agents(self) -> Agents:
        """Return connections to its store, as soon as it listens."""
        agents = Agents(self.host, self.says(Listening).port)
        self._connected.append(agents)
        return agents

    def end(self) -> None:
        """Kill it, whatever it still does."""
        self.link.close()
        self.process.kill()
        self.process.wait(BOUND)
        for agents in self._connected:
            agents.close()


class Begun(Protocol):
    """See the fixture `begin`."""

    def __call__(
        self,
        ports: tuple[int, ...],
        *,
        infra_rank: int = 0,
        incarnation: int = 1,
        memory: Memory = Memory(),  # noqa: B008 - frozen
        timeouts: Timeouts = ...,
        before: str = ...,
        listen: str | None = ...,
    ) -> Coordinator:
        """Start a coordinator."""

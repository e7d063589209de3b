"""Many agents in one process, by their own code: the machine that decides, and the wire to the coordinator's store.

Only the workers are missing: an agent that gets a Run counts as running, and makes progress at once. Its worker is
parked when it is asked to be.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from ft_bench.joining import address
from ft_supervisor.agent.connection import FromWire
from ft_supervisor.agent.wire import Wire
from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.protocol.actions import AgentAction, Announce, Dial, Leave, Send, Start, StopWorkers
from ft_supervisor.core.protocol.events import AgentEvent, Tick, WorkerProgressed, WorkersExited, WorkersGone
from ft_supervisor.core.protocol.model import Failure, Job, Memory, Node
from ft_supervisor.process import clock
from ft_supervisor.process.log_lines import render

PORT = 1
"""The port that the agents report as free. It is not used."""

Sees = Callable[[AgentEvent | None, Sequence[AgentAction]], bool]
"""Whether an agent's event, or its actions then, are the awaited ones."""


class Agents:
    """The agents `ranks` of a job, for one thread."""

    def __init__(self, job: Job, ranks: Sequence[int]) -> None:
        self._said: SimpleQueue[tuple[int, FromWire | Failure]] = SimpleQueue()
        self._job = job
        self._heartbeat = job.timeouts.heartbeat
        now = clock.now()
        nodes = {rank: Node(rank, job.nodes[rank], address(0)) for rank in ranks}
        self._machines = {rank: AgentMachine(job, node, 1, Memory(), now) for rank, node in nodes.items()}
        self._wires = {
            rank: Wire(job, node, 1, lambda item, rank=rank: self._said.put((rank, item)))  # type: ignore[misc]
            for rank, node in nodes.items()
        }
        # Spread over a heartbeat, as they are in a cluster.
        self._ticks = [(now + self._heartbeat * i / len(ranks), rank) for i, rank in enumerate(ranks)]
        self._waiting: set[int] = set()
        self.interrupted = 0
        """How many agents have had to stop workers."""
        self.fresh = 0
        """How many times an agent had to start a new process."""
        self._sees: Sees = lambda _event, _actions: False

    def start(self) -> None:
        """Let all agents look for their coordinator."""
        for rank, machine in self._machines.items():
            self._carry_out(rank, None, machine.start(clock.now()))

    def fail(self, rank: int) -> None:
        """Let this agent's worker raise. For any thread."""
        self._said.put((rank, Failure(rank, 0, exception="ValueError", lives=True)))

    def until_all(self, sees: Sees) -> None:
        """Run the agents until `sees` was true for each of them. Raises RuntimeError when one leaves."""
        self._waiting, self._sees = set(self._machines), sees
        while self._waiting:
            self._take(self._ticks[0][0] - clock.now())
            while not self._said.empty():  # before any clock: no peer is silent while its messages are unread here
                self._take(0.0)
            while self._ticks[0][0] <= clock.now():
                self._tick(self._ticks[0][1])

    def _take(self, timeout: float) -> None:
        try:
            rank, item = self._said.get(timeout=max(0.0, timeout))
        except Empty:
            return
        if isinstance(item, Failure):
            cycle = self._machines[rank].memory.newest
            assert cycle is not None
            self._handle(rank, [WorkersExited(cycle, (item,))])
        else:
            self._handle(rank, self._wires[rank].receive(item, clock.now()))

    def _tick(self, rank: int) -> None:
        now = clock.now()
        heapq.heapreplace(self._ticks, (now + self._heartbeat, rank))
        self._wires[rank].watch(self._machines[rank].watched)
        self._handle(rank, [*self._wires[rank].judge(now), Tick()])

    def _handle(self, rank: int, events: Sequence[AgentEvent]) -> None:
        for event in events:
            self._carry_out(rank, event, self._machines[rank].handle(event, clock.now()))

    def _carry_out(self, rank: int, event: AgentEvent | None, actions: Sequence[AgentAction]) -> None:
        for action in actions:
            match action:
                case Dial(candidates):
                    self._wires[rank].dial(candidates)
                case Send(message):
                    self._wires[rank].send(message)
                case Announce(fact) if (line := render(fact, self._job)).level == "warning":
                    print(f"agent {rank}: {line.event} {dict(line.fields)}", file=sys.stderr)
                case Start(run):
                    self.fresh += run.fresh
                    self._handle(rank, [WorkerProgressed(run.cycle)])
                case StopWorkers(cycle, park=park):
                    self.interrupted += 1
                    self._handle(rank, [WorkersGone(cycle, PORT, (0,) if park else ())])
                case Leave(reason=reason):
                    raise RuntimeError(f"agent {rank} leaves: {reason}")
        if rank in self._waiting and self._sees(event, actions):
            self._waiting.discard(rank)

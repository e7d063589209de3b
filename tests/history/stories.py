"""Runs the real machines for a short time, and records them as their shells do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.events import (
    Connected,
    Disconnected,
    Looked,
    Mailed,
    Tick,
    WorkersExited,
    WorkersGone,
)
from ft_supervisor.core.protocol.ledger import EMPTY
from ft_supervisor.core.protocol.model import Cycle, Failure, Job, Memory, Node, Outcome, Verdict
from ft_supervisor.journal.journal import LIMIT, Journal

NODES = tuple(Node(rank, f"n{rank}", f"10.0.0.{rank}", gpus=4) for rank in range(3))
JOB = Job(
    run_id="17.0.0",
    nodes=tuple(node.name for node in NODES),
    hosts=tuple(node.addr for node in NODES),
    ports=(29400, 29401),
    run_folder="/run",
    local_folder="/local",
    active=2,
    per_node=1,
    command=("python", "train.py"),
    env=(("TOKEN", "geheim"),),
    nonce="nonce-7",
)
SUCCESS = Verdict(Outcome.SUCCESS, "all done")


def must_not_fail(problem: str) -> None:
    pytest.fail(problem)


class Recorder:
    """A machine and its journal; `now` is its clock, with all the digits that a real one has."""

    def __init__(self, machine: Any, journal: Journal, now: float) -> None:
        self.machine, self.journal, self.now = machine, journal, now
        self.said: list[Any] = []
        self.events = 0

    def start(self) -> list[Any]:
        return self._record(None, self.machine.start(self.now))

    def tell(self, event: Any, after: float = 0.0123456789) -> list[Any]:
        self.now += after
        return self._record(event, self.machine.handle(event, self.now))

    def _record(self, event: Any, actions: list[Any]) -> list[Any]:
        term = getattr(self.machine, "term", None)
        self.journal.record(self.now, event, actions, term=term, cycle=getattr(self.machine, "running", None))
        self.said += actions
        self.events += 1
        return actions

    def beat(self, times: int, term: int | None, lease_behind: int = 1) -> None:
        """Send the agent's heartbeats."""
        for _ in range(times):
            round_ = self.machine.round_told = getattr(self.machine, "round_told", 0) + 1
            self.tell(Looked(self.now + 0.4, round_, term, round_ - lease_behind), 0.4012345678)
            self.tell(Tick(), 0.1)


@contextmanager
def agent(folder: Path, limit: int = LIMIT, name: str = "agent-1") -> Iterator[Recorder]:
    """Return a new agent of node 1, not started."""
    now = 12345.678901234
    begin = orders.Begin(JOB, NODES[1], 1, Memory())
    journal = Journal.open(folder, name, begin, now, must_not_fail, limit)
    yield Recorder(AgentMachine(JOB, NODES[1], 1, Memory(), now), journal, now)
    journal.close()


def become_active(one: Recorder, beats: int) -> None:
    """Lead the agent from its start to running workers."""
    one.start()
    one.tell(Connected(0, 1, 7, one.now, 4711))
    one.machine.round_told = 7
    one.tell(Mailed(messages.Standby(0, None, EMPTY, 0.25)))
    one.beat(beats, 0)
    one.tell(Mailed(run(Cycle(0, 1))))
    one.beat(beats, 0)


def live(one: Recorder, beats: int = 2) -> None:
    """Lead the agent from joining, over a failure and a new coordinator, to success."""
    become_active(one, beats)
    one.tell(WorkersExited(Cycle(0, 1), (Failure(1, 0, signal="SIGKILL", time=1.5),)))
    one.tell(WorkersGone(Cycle(0, 1), 4712))
    one.tell(Disconnected("connection reset", silent=False))
    one.tell(Connected(1, 2, 7, one.now, 4712))
    one.tell(Mailed(messages.Prepare(1)))
    one.tell(Mailed(run(Cycle(1, 1))))
    one.beat(beats, 1)
    one.tell(WorkersExited(Cycle(1, 1), ()))
    one.tell(Mailed(messages.Propose(1, SUCCESS)))
    one.tell(Mailed(messages.Close(1, SUCCESS)))


def run(cycle: Cycle) -> messages.Run:
    return messages.Run(cycle.term, cycle, "0-1", 1, 2, cycle.n, 10, "10.0.0.0", 4711, EMPTY, 0.25)

"""An agent for tests: events in, actions out, on a clock of its own."""

from __future__ import annotations

from typing import Any

from tests.core.machines import BEAT, C0, TIMEOUTS, deeds, job, node

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.protocol import events, messages, orders
from ft_supervisor.core.protocol.actions import Leave, LookAtWorkers, Send, Tell
from ft_supervisor.core.protocol.events import Connected, Looked, Mailed, Tick
from ft_supervisor.core.protocol.ledger import EMPTY, Ledger
from ft_supervisor.core.protocol.model import Cycle, Job, Memory, Outcome, Verdict

SUCCESS = Verdict(Outcome.SUCCESS, "over")
FAILED = Verdict(Outcome.FAILED, "over")


STOP = messages.Stop(0, C0, "0-2", TIMEOUTS.restart_grace)


EPOCH = 1.7e9
"""Seconds since the epoch at which a Play's clock is 0."""


class Play:
    """An agent on node 1, its clock, and a store of n0 whose rounds and leases move while it is connected."""

    def __init__(self, memory: Memory | None = None, a_job: Job | None = None, waited: float = 0.0) -> None:
        self.now = 0.0
        self.machine = AgentMachine(a_job or job(), node(1), 1, memory or Memory(), 0.0, EPOCH, waited)
        self.first = deeds(self.machine.start(0.0))
        self.lease = True
        self.round = 1
        self.connection = 0
        self.looks: list[LookAtWorkers] = []

    def feed(self, *what: events.AgentEvent) -> list[object]:
        """Let these events happen; return the actions, without those of every heartbeat: the order to the daemon, and
        looks at the workers, which are kept in `looks`."""
        answers: list[object] = []
        for event in what:
            answers += deeds(self.machine.handle(event, self.now))
            self.machine.validate()
        self.looks += [deed for deed in answers if isinstance(deed, LookAtWorkers)]
        return [deed for deed in answers if not isinstance(deed, LookAtWorkers) and not _is_alive(deed)]

    def connect(self, candidate: int = 0) -> list[object]:
        """Let the store of this candidate answer. Port 9 is free."""
        self.connection += 1
        self.round = 1
        return self.feed(Connected(candidate, self.connection, self.round, self.now, 9))

    def look(self) -> list[object]:
        """Let the agent read the store's next pulse. With `lease`, a majority has read the round before."""
        self.round += 1
        lease = self.round - 1 if self.lease else 0
        return self.feed(Looked(self.now, self.round, self.machine.memory.promise, lease))

    def wait(self, seconds: float) -> list[object]:
        """Let `seconds` of looks and ticks pass, one each heartbeat; return the actions."""
        answers: list[object] = []
        until = self.now + seconds
        while self.now < until:
            self.now += BEAT
            if self.connection:
                answers += self.look()
            answers += self.feed(Tick())
        return answers

    def alive(self) -> orders.Alive:
        """Let a tick happen; return the order Alive to the daemon."""
        told = [deed.order for deed in self.machine.handle(Tick(), self.now) if isinstance(deed, Tell)]
        assert isinstance(told[0], orders.Alive)
        return told[0]


def _is_alive(deed: object) -> bool:
    return isinstance(deed, Tell) and isinstance(deed.order, orders.Alive)


def run(
    cycle: Cycle = C0, group_rank: int = 1, term: int = 0, ledger: Ledger = EMPTY, age: float = 0.0
) -> messages.Run:
    return messages.Run(term, cycle, "0-2", group_rank, 3, cycle.n, 3, "a0", 100, ledger, age)


def standby(cycle: Cycle | None, term: int = 0) -> Mailed:
    return Mailed(messages.Standby(term, cycle, EMPTY, 0.0))


def mail(message: messages.ToAgent) -> Mailed:
    return Mailed(message)


def memory_of(newest: Cycle | None = None, **known: object) -> Memory:
    """Return the memory of a node that has promised term 0."""
    values: dict[str, Any] = {"promise": 0, "group": "0-2" if newest else "", **known}
    return Memory(newest=newest, **values)


def register(
    connection: int = 1, running: Cycle | None = None, memory: Memory | None = None, *, serial: int = 0, round_: int = 1
) -> Send:
    message = messages.Register(node(1), 1, connection, round_, 9, running, memory or memory_of(), serial or connection)
    return Send(message)


def remember(newest: Cycle | None = None, **known: object) -> Tell:
    return Tell(orders.Remember(memory_of(newest, **known)))


def stopped(cycle: Cycle = C0, port: int = 9) -> Send:
    return Send(messages.WorkersStopped(0, 1, 1, cycle, port))


def goodbye(verdict: Verdict | None = None) -> Send:
    return Send(messages.Goodbye(0, 1, 1, verdict))


NO_LEASE = Leave(75, None, "no coordinator with a majority for 60 s")


def running(cycle: Cycle = C0, a_job: Job | None = None) -> Play:
    """Return an agent whose workers run."""
    play = Play(a_job=a_job)
    play.connect()
    play.feed(mail(run(cycle)))
    assert play.machine.running == cycle
    return play

"""The simulated process of a coordinator: the real machine, its store, and a shell that carries out its actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.process import Process
from tests.simulation.store import Connection, Store
from tests.simulation.words import brief

from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol import actions, messages
from ft_supervisor.core.protocol.actions import CoordinatorAction
from ft_supervisor.core.protocol.events import (
    CloseHeld,
    CoordinatorEvent,
    Heard,
    Received,
    Tick,
    VerdictFileFound,
    VerdictWritten,
)
from ft_supervisor.core.protocol.messages import ToCoordinator
from ft_supervisor.core.protocol.model import Memory, Verdict
from ft_supervisor.core.protocol.orders import Done, Listening, Order, VerdictDecided

if TYPE_CHECKING:
    from tests.simulation.node import SimNode

IMPORTS = (0.2, 2.0)
"""Seconds from the coordinator's exec until it listens."""
FILE_TIME = (0.001, 0.2)
"""Seconds to read or write a file of the run."""

MOMENTS = {
    messages.Stop: "stopping",
    messages.Prepare: "preparing",
    messages.Propose: "closing",
    messages.Close: "closed",
    messages.Members: "changing",
}


class SimCoordinator(Process):
    """One incarnation of a node's coordinator, from its exec on."""

    def __init__(self, node: SimNode, incarnation: int, memory: Memory) -> None:
        world = node.world
        super().__init__(world, node.beat)
        self.world = world
        self.node = node
        self.incarnation = incarnation
        self.listening = False
        self.store = Store(lambda message: self.feed(Received(message)))
        self.connections: list[Connection] = []
        self.machine: CoordinatorMachine | None = None
        self._memory = memory
        self._echoes: dict[tuple[int, int, int], int] = {}
        self._ended = False
        self._decided = False
        world.after(world.between(*IMPORTS), self.do, self._begin)

    def feed(self, event: CoordinatorEvent) -> None:
        """Let the machine handle an event, and carry out its actions. To be called by way of `do`."""
        if not self.alive or self.machine is None:
            return
        if self.world.history is not None and not isinstance(event, Tick | Heard):
            self.world.note(f"{self.node.name} coord", f"<- {brief(event)}")
        if isinstance(event, Received):
            self.world.checks.received(self, event.message)
        with self.world.checks.states():
            todo = self.machine.handle(event, self.node.local())
            self.machine.state.validate()
        self._perform(todo)

    def die(self) -> None:
        """End the process, and its store with it."""
        self.alive = False
        if self.node.host.up:
            for connection in self.connections:
                connection.reset()

    def on_beat(self) -> None:
        if moved := self._moved():
            self.world.checks.heard(self, [rank for rank, _ in moved])
            self.feed(Heard(moved))
        if self.store.permanent_close is not None and not self._ended:
            self._end(self.store.permanent_close)
        self.feed(Tick())

    def repeat(self, message: ToCoordinator) -> None:
        """Receive a message once more."""
        self.feed(Received(message))

    def _begin(self) -> None:
        node, now = self.node, self.node.local()
        self.machine = self.world.machines.coordinator(self.world.job, node.node, self.incarnation, self._memory, now)
        self.start_beating()
        self.listening = True
        node.tell_daemon("coordinator", Listening(1))

    def _moved(self) -> tuple[tuple[int, int], ...]:
        assert self.machine is not None
        moved: list[tuple[int, int]] = []
        for member in self.machine.members:
            key = (member.node.infra_rank, member.incarnation, member.connection)
            value = self.store.heartbeats.get(key, 0)
            if value != self._echoes.get(key, 0):
                self._echoes[key] = value
                moved.append((key[0], value))
        return tuple(moved)

    def _perform(self, todo: list[CoordinatorAction]) -> None:
        for action in todo:
            if not self.alive:
                return
            if self.world.history is not None:
                self.world.note_action(f"{self.node.name} coord", action)
            match action:
                case actions.Pulse(round_, term, lease):
                    self.store.pulse = (round_, term, lease)
                    if term is not None and term % len(self.world.job.nodes) == self.node.rank:
                        self.world.checks.in_charge(self, term)
                case actions.Mail(infra_rank, incarnation, connection, message):
                    self.world.checks.mail(self, infra_rank, message)
                    self.store.mail((infra_rank, incarnation, connection), message)
                    if isinstance(message, messages.Run):
                        self.world.moment("promoting" if message.restart_count else "ordering", infra_rank)
                    elif (moment := MOMENTS.get(type(message))) is not None:
                        self.world.moment(moment, self.node.rank)
                case actions.Tell(order):
                    self._tell(order)
                case actions.Announce(fact):
                    self.world.checks.coordinator_announced(self, fact)
                case actions.WriteVerdict(verdict):
                    self.world.after(self.world.between(*FILE_TIME), self.do, self._write, verdict)
                case actions.ClaimClose(verdict):
                    self.world.checks.verdict(verdict, f"{self.node.name} claims")
                    self._end(self.store.claim(verdict))
                case actions.LookForVerdict():
                    self.world.look_for_verdict(self, self._found)
                case actions.Leave(code, verdict, reason):
                    self.node.tell_daemon("coordinator", Done(code, verdict, reason))
                    self.node.kill_coordinator()

    def _found(self, verdict: Verdict | None) -> None:
        if verdict is not None:
            self.feed(VerdictFileFound(verdict))

    def _end(self, verdict: Verdict) -> None:
        self._ended = True
        self.feed(CloseHeld(verdict))

    def _tell(self, order: Order) -> None:
        if isinstance(order, VerdictDecided) and not self._decided:
            self._decided = True
            self.world.checks.verdict(order.verdict, f"{self.node.name} decides")
            self.world.moment("recording", self.node.rank)
        self.node.tell_daemon("coordinator", order)

    def _write(self, verdict: Verdict) -> None:
        if self.world.files_away:
            self.world.after(0.2, self.do, self._write, verdict)
        else:
            self.feed(VerdictWritten(self.world.write_file(verdict, f"{self.node.name} coord")))

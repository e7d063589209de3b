"""What a node owes its coordinator: its promise, its memory, its lease, and which mail counts.

A node follows the coordinator of the newest term that it has promised. Mail of any other term changes nothing, save a
Prepare of a newer term, which is a new promise, and a Close, which holds in every term. What the node promises or
accepts goes to its daemon first, so that the next agent of the node keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ft_supervisor.core.agent.candidate_search import CandidateSearch
from ft_supervisor.core.protocol import agent_facts as facts
from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.actions import AgentAction, Announce, Send, Tell
from ft_supervisor.core.protocol.events import Connected, Looked
from ft_supervisor.core.protocol.ledger import newer
from ft_supervisor.core.protocol.model import NO_PROMISE, Accepted, Cycle, Failure, Job, Memory, Node, Roster
from ft_supervisor.core.protocol.plausible import to_node
from ft_supervisor.core.protocol.refusals import Refusals
from ft_supervisor.core.protocol.signs import NodeSign
from ft_supervisor.core.quorum.lease import Lease
from ft_supervisor.core.quorum.roster import first_candidate, first_term

Orders = messages.Standby | messages.Run | messages.Continue | messages.Stop | messages.TakeEvidence | messages.Complete
"""What a coordinator in charge sends."""


class Follower:
    """One agent's. `do` takes the actions, in order. All times in seconds."""

    def __init__(
        self, job: Job, node: Node, incarnation: int, memory: Memory, do: Callable[[AgentAction], None]
    ) -> None:
        self.memory = memory
        self.search = CandidateSearch(job, node)
        self.lease = Lease()
        self.port = 0
        """A port that is free on this node, for the next cycle."""
        self._job = job
        self._node = node
        self._incarnation = incarnation
        self._do = do
        self._refusals = Refusals()
        self._connected_at = 0.0
        self._serial = 0

    @property
    def led(self) -> bool:
        """Whether a coordinator in charge has sent orders on the present connection."""
        return self.search.led

    def start(self, now: float) -> None:
        """Begin to look for a coordinator."""
        self._do(self.search.start(self.memory, now))

    def connect(self, event: Connected, now: float) -> None:
        """Note the new connection. The first coordinator of a fresh job gets a promise without a vote."""
        self.port, self._connected_at = event.port, now
        self.search.connect(event, now)
        self.lease.connect(event.round, event.asked)
        self._do(Announce(facts.CoordinatorFound(event.candidate)))
        if self.memory.promise == NO_PROMISE and event.candidate == first_candidate(self._job):
            self.remember(replace(self.memory, promise=first_term(self._job)))

    def lose(self) -> None:
        """Look for another coordinator, as the connection is lost."""
        self._do(self.search.lose(self.memory))

    def again(self) -> None:
        """Connect anew to the same candidate."""
        self._do(self.search.again(self.memory))

    def look(self, event: Looked, now: float) -> None:
        """Note the store's pulse."""
        self.search.look(event.round, event.term, event.lease, self.memory, now)
        # Until the coordinator has acted on our Register, it may take us for lost while we read its leases.
        ours = self.search.led and event.term == self.memory.promise
        self.lease.look(event.asked, event.round, event.lease if ours else 0)

    def tick(self, now: float) -> None:
        """Leave a candidate that does not help."""
        if (dial := self.search.tick(self.memory, now)) is not None:
            self._do(dial)

    def register(
        self,
        running: Cycle | None,
        signal: str,
        completed: int,
        hangs: tuple[Failure, ...],
        sign: NodeSign | None,
    ) -> None:
        """Tell the coordinator all about this node. `running`: the cycle whose workers may live; `signal`: the one that
        is to end the node, "" for none; `completed`, `hangs`, `sign`: see messages.Register. Of failures only the
        first goes along, which decides: there has to be room for the lists of 10,000 nodes."""
        self._serial += 1
        register = messages.Register(
            node=self._node,
            incarnation=self._incarnation,
            connection=self.search.connection,
            round=self.search.round,
            port=self.port,
            running=running,
            memory=replace(self.memory, failures=self.memory.failures[:1]),
            serial=self._serial,
            told=signal,
            completed=completed,
            hangs=hangs,
            sign=sign,
        )
        self._do(Send(register))

    def receive(self, message: messages.ToAgent, now: float) -> Orders | messages.Close | messages.Prepare | None:
        """Take mail. Return the message if the agent has to act on it; a Prepare has to be answered by a Register."""
        if wrong := to_node(message, self._job, self._node, self.memory):
            self._drop(message, wrong, now)
            return None
        if isinstance(message, messages.Close):
            return message
        prepare = isinstance(message, messages.Prepare)
        if prepare and message.term > self.memory.promise:
            self.remember(replace(self.memory, promise=message.term))
            self._do(Announce(facts.TermPromised(message.term)))
        elif message.term != self.memory.promise:
            self._drop(message, None, now)
            return None
        if not prepare:
            self.search.confirm()
        match message:
            case messages.Prepare():
                self.search.prepare(now)
                return message
            case messages.Members(roster=roster):
                self._keep(roster)
            case messages.Propose(verdict=verdict, deputy=deputy):
                self.remember(replace(self.memory, accepted=Accepted(message.term, verdict, deputy)))
                self.send(messages.VerdictKept)
            case _:
                self._note(message)
                return message
        return None

    def remember(self, memory: Memory) -> None:
        """Make this the node's memory: the daemon gives it to the node's next agent."""
        self.memory = memory
        self._do(Tell(orders.Remember(memory)))

    def begin(self, cycle: Cycle, group: str) -> None:
        """Remember that this cycle is the newest."""
        self.remember(replace(self.memory, newest=cycle, group=group, succeeded=None, failures=()))

    def send(self, kind: type, **fields: object) -> None:
        """Send a message of this kind to the coordinator. Without a connection it is dropped: the next Register has all
        that matters. So it is before the first promise: no coordinator leads this node then."""
        if self.search.connected and self.memory.promise != NO_PROMISE:
            self._do(Send(kind(self.memory.promise, self._node.infra_rank, self._incarnation, **fields)))

    def drop_beside(self, run: messages.Run, running: Cycle, now: float) -> None:
        """Announce that a Run changes nothing, as workers of `running` are not gone."""
        if (more := self._refusals.due("Run beside workers", now)) is not None:
            self._do(Announce(facts.RunDropped(run.cycle, running, more)))

    def _keep(self, roster: Roster) -> None:
        if self.memory.roster is None or roster.stamp > self.memory.roster.stamp:
            self.remember(replace(self.memory, roster=roster))
        if roster == self.memory.roster:
            self.send(messages.RosterKept, stamp=roster.stamp)

    def _note(self, message: Orders) -> None:
        """Take the lease's age and the ledger, which come with orders that begin or go on."""
        if isinstance(message, messages.Stop | messages.TakeEvidence | messages.Complete):
            return
        if message.age is not None:
            self.lease.grant(self._connected_at - message.age)
        if (ledger := newer(self.memory.ledger, message.ledger)) != self.memory.ledger:
            self.remember(replace(self.memory, ledger=ledger))

    def _drop(self, message: messages.ToAgent, wrong: str | None, now: float) -> None:
        """Log that mail changes nothing. `wrong`: why it cannot be believed or done; None if it is of another term."""
        name = type(message).__name__
        if (more := self._refusals.due(f"{name} {wrong}", now)) is not None:
            self._do(Announce(facts.MailDropped(name, message.term, wrong, more)))

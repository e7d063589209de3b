"""The coordinator's list of nodes: which are here, when each was last heard, and where workers may still run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ft_supervisor.core.protocol.actions import Mail
from ft_supervisor.core.protocol.messages import Register, ToAgent
from ft_supervisor.core.protocol.model import Cycle, Node, Problem

NEVER = -1
"""Incarnation and connection of a node that has not registered with this coordinator."""


@dataclass
class Member:
    """A node that has registered, or is expected to. Times are seconds of the coordinator's own clock."""

    node: Node
    incarnation: int
    connection: int
    port: int
    heard: float
    register: Register | None = None
    """Its newest Register; None before the first."""
    running: bool = False
    """Its workers may be running."""
    cycle: Cycle | None = None
    """The newest cycle that it may be running; None also when that is not known."""
    asked: int | None = None
    """The term of our newest Prepare on its connection. A Register from before that Prepare is no answer to it."""
    agentless: bool = False
    """Its daemon has said that the agent of this incarnation has ended, with all that it had started."""
    lost: bool = False
    gone: bool = False
    """It has sent Goodbye: it runs nothing and does not come back."""
    times_lost: int = 0
    problem: Problem | None = None
    """The health check that has failed there; with one the node is not chosen any more."""

    @property
    def here(self) -> bool:
        """Neither lost nor gone."""
        return not (self.lost or self.gone)

    @property
    def registered(self) -> bool:
        """Here, and with a connection to send mail to."""
        return self.register is not None and self.here

    def mail(self, message: ToAgent) -> Mail:
        """Return the action that pushes `message` into the queue of its newest connection."""
        return Mail(self.node.infra_rank, self.incarnation, self.connection, message)

    def stopped(self) -> None:
        """Note that no workers run there."""
        self.running, self.cycle = False, None


class Members:
    """The members, by infra_rank."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}

    def __getitem__(self, infra_rank: int) -> Member:
        return self._members[infra_rank]

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def get(self, infra_rank: int) -> Member | None:
        """Return the member, if it has registered or is expected to."""
        return self._members.get(infra_rank)

    def register(self, message: Register, now: float) -> Member | None:
        """Take the node on (again). None if a newer Register of it is known, or it has left for good."""
        known = self._members.get(message.infra_rank)
        if known is not None and (known.gone or not _is_newer(message, known)):
            return None
        member = Member(
            message.node,
            message.incarnation,
            message.connection,
            message.port,
            heard=now,
            register=message,
            running=message.running is not None,
            cycle=message.running,
            problem=message.memory.unhealthy,
        )
        if known is not None:
            member.times_lost = known.times_lost
            if (known.incarnation, known.connection) == (member.incarnation, member.connection):
                member.asked = known.asked
        self._members[message.infra_rank] = member
        return member

    def expect(self, node: Node, now: float) -> None:
        """Add a member that has not registered with us. It may be running workers until it registers or is lost."""
        self._members[node.infra_rank] = Member(node, NEVER, NEVER, 0, heard=now, running=True)

    def forgive(self, seconds: float, now: float) -> None:
        """Take `seconds` off the silence of every member: the coordinator itself was suspended for so long."""
        for member in self._members.values():
            member.heard = min(member.heard + seconds, now)

    def present(self, now: float, silence: float) -> set[int]:
        """Return the nodes that have registered and were heard within `silence` seconds."""
        return {m.node.infra_rank for m in self if m.registered and not m.agentless and now - m.heard < silence}

    def healthy(self, now: float, silence: float) -> set[int]:
        """Return the nodes that are present and run nothing, so that they can be chosen."""
        return {rank for rank in self.present(now, silence) if not self._members[rank].running}

    def anybody_runs(self) -> bool:
        """Whether workers may be running on any node."""
        return any(m.running and m.here for m in self)

    def running(self) -> set[int]:
        """Return the nodes on which workers may be running."""
        return {m.node.infra_rank for m in self if m.here and m.running}

    def undecided(self, now: float, silence: float) -> bool:
        """Whether a node is here that cannot be chosen yet, but may become so, or be lost."""
        return any(m.here and (m.running or m.agentless or now - m.heard >= silence) for m in self)

    def domains(self) -> dict[int, str]:
        """Return each member's domain_id by infra_rank."""
        return {member.node.infra_rank: member.node.domain_id for member in self}


def _is_newer(message: Register, known: Member) -> bool:
    if known.agentless:
        return message.incarnation > known.incarnation
    serial = known.register.serial if known.register else 0
    return (message.incarnation, message.serial) > (known.incarnation, serial)

"""The coordinator's list of nodes: who is here, since when silent, and whose workers may still run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ft_supervisor.core.actions import Mail
from ft_supervisor.core.messages import Register, ToAgent
from ft_supervisor.core.model import Cycle, Node, Problem

NEVER = -1
"""The incarnation and connection of a node that has not registered with this coordinator."""


@dataclass
class Member:
    """A node that has registered, or that should. Times are the coordinator's own clock, in seconds."""

    node: Node
    incarnation: int
    connection: int
    port: int
    heard: float
    register: Register | None = None
    """The newest; None for one that has not come yet."""
    running: bool = False
    """Its workers may be running."""
    cycle: Cycle | None = None
    """The newest that it may be running; None also where that is not known."""
    asked: int | None = None
    """The term that a Prepare on its connection has asked for: what it had promised before that proves nothing."""
    lost: bool = False
    gone: bool = False
    """It said Goodbye: it runs nothing and will never be back."""
    times_lost: int = 0
    problem: Problem | None = None
    """Which check has failed there: it is not to be chosen."""

    @property
    def here(self) -> bool:
        """Neither lost nor gone."""
        return not (self.lost or self.gone)

    @property
    def registered(self) -> bool:
        """Here, and with a connection to send mail to."""
        return self.register is not None and self.here

    def mail(self, message: ToAgent) -> Mail:
        """This message for the queue of its newest connection."""
        return Mail(self.node.infra_rank, self.incarnation, self.connection, message)

    def stopped(self) -> None:
        """Nothing runs there."""
        self.running, self.cycle = False, None


class Members:
    """Members by infra_rank."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}

    def __getitem__(self, infra_rank: int) -> Member:
        return self._members[infra_rank]

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def get(self, infra_rank: int) -> Member | None:
        """The member, if it has ever registered, or should."""
        return self._members.get(infra_rank)

    def register(self, message: Register, now: float) -> Member | None:
        """Take the node on (again); None when a newer word of it is known, or the node has left for good."""
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
        """A member whose word we do not have: it may be running anything, until it registers or is lost."""
        self._members[node.infra_rank] = Member(node, NEVER, NEVER, 0, heard=now, running=True)

    def forgive(self, seconds: float, now: float) -> None:
        """Time in which the coordinator itself stood still counts against nobody."""
        for member in self._members.values():
            member.heard = min(member.heard + seconds, now)

    def present(self, now: float, silence: float) -> set[int]:
        """Who has registered and was heard within `silence` seconds."""
        return {m.node.infra_rank for m in self if m.registered and now - m.heard < silence}

    def healthy(self, now: float, silence: float) -> set[int]:
        """Who can be chosen: present, and running nothing."""
        return {rank for rank in self.present(now, silence) if not self._members[rank].running}

    def anybody_runs(self) -> bool:
        """Whether anybody's workers may be running."""
        return any(m.running and m.here for m in self)

    def running(self) -> set[int]:
        """Whose workers may be running."""
        return {m.node.infra_rank for m in self if m.here and m.running}

    def undecided(self, now: float, silence: float) -> bool:
        """Whether somebody is here who can't be chosen yet, but may be soon, or be lost."""
        return any(member.here and (member.running or now - member.heard >= silence) for member in self)

    def domains(self) -> dict[int, str]:
        """Each member's domain_id."""
        return {member.node.infra_rank: member.node.domain_id for member in self}


def _is_newer(message: Register, known: Member) -> bool:
    serial = known.register.serial if known.register else 0
    return (message.incarnation, message.serial) > (known.incarnation, serial)

"""The coordinator's list of nodes: who is here, since when silent, and whose workers may still run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ft_supervisor.core.messages import Register
from ft_supervisor.core.model import Node


@dataclass
class Member:
    """A node that has registered. Times are the coordinator's own clock, in seconds."""

    node: Node
    incarnation: int
    connection: int
    port: int
    heard: float
    running: bool = False
    """Its workers may be running."""
    lost: bool = False
    gone: bool = False
    """It said Goodbye: it runs nothing and will never be back."""
    times_lost: int = 0

    @property
    def here(self) -> bool:
        """Neither lost nor gone."""
        return not (self.lost or self.gone)


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
        """The member, if it has ever registered."""
        return self._members.get(infra_rank)

    def register(self, message: Register, now: float) -> Member | None:
        """Take the node on (again); None when a newer incarnation is known, or the node has left for good."""
        known = self._members.get(message.infra_rank)
        which = (message.incarnation, message.connection)
        if known is not None and (which < (known.incarnation, known.connection) or known.gone):
            return None
        member = Member(message.node, *which, message.port, heard=now, running=message.running is not None)
        member.times_lost = known.times_lost if known else 0
        self._members[message.infra_rank] = member
        return member

    def heard(self, infra_rank: int, now: float) -> None:
        """A sign of life. A lost node stays lost until it registers anew."""
        member = self._members.get(infra_rank)
        if member is not None:
            member.heard = now

    def forgive(self, seconds: float, now: float) -> None:
        """Time in which the coordinator itself stood still counts against nobody."""
        for member in self._members.values():
            member.heard = min(member.heard + seconds, now)

    def healthy(self, now: float, silence: float) -> set[int]:
        """Who can be chosen: here, running nothing, and heard within `silence` seconds."""
        return {
            member.node.infra_rank
            for member in self._members.values()
            if member.here and not member.running and now - member.heard < silence
        }

    def undecided(self, now: float, silence: float) -> bool:
        """Whether somebody is here who can't be chosen yet, but may be soon, or be lost."""
        return any(member.here and (member.running or now - member.heard >= silence) for member in self)

    def domains(self) -> dict[int, str]:
        """Each member's domain_id."""
        return {member.node.infra_rank: member.node.domain_id for member in self}

"""Changes the list of members in such a way that a majority of the old list and one of the new always know it.

    kept by majorities of both   {members: new, former: old}  ->  {members: new}  kept by a majority of the new

A successor that finds either list goes on from it: it needs the majorities that this list asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ft_supervisor.core.protocol.model import Roster
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.core.quorum.roster import quorum


class RosterChange:
    """The roster of a coordinator in charge, and its changes. A `roster` counts from the moment of its proposal."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.eligible: frozenset[int] = frozenset()
        """Members that a successor would certainly ask; only these may get workers."""
        self._kept: set[int] = set()
        self._done = False

    @property
    def pending(self) -> bool:
        """Whether a change is under way; the next one has to wait for its end."""
        return not self._done

    @property
    def stage(self) -> tuple[tuple[int, int], bool]:
        """The stamp of the roster, and whether its change is under way."""
        return self.roster.stamp, self.pending

    def begin(self) -> None:
        """Begin with the first roster of a fresh job, which all nodes know."""
        self._done = True
        self.eligible = frozenset(parse_ranks(self.roster.members))

    def take_over(self, term: int) -> Roster:
        """Propose the roster that was found, as the first one of this term: every member has to keep it."""
        return self._propose(replace(self.roster, term=term))

    def change(self, term: int, members: Iterable[int]) -> Roster | None:
        """Propose these members, in the order given. None if they are the list already, or a change is under way."""
        folded = format_ranks(members)
        if self.pending or folded == self.roster.members:
            return None
        self.eligible &= frozenset(parse_ranks(folded))
        return self._propose(Roster(term, self.roster.number + 1, folded, former=self.roster.members))

    def keep(self, infra_rank: int, stamp: tuple[int, int]) -> Roster | None:
        """Count a node that keeps the roster with this stamp; return the next proposal when it is time for one."""
        if stamp != self.roster.stamp or self._done:
            return None
        self._kept.add(infra_rank)
        if not quorum(self.roster, self._kept):
            return None
        self.eligible = frozenset(parse_ranks(self.roster.members))
        if self.roster.former:
            return self._propose(replace(self.roster, number=self.roster.number + 1, former=""))
        self._done = True
        return None

    def _propose(self, roster: Roster) -> Roster:
        self.roster, self._kept, self._done = roster, set(), False
        return roster

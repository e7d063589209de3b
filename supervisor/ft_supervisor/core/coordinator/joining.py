"""Tells which nodes a job waits for before its first cycle. All times in seconds of the coordinator's own clock."""

from __future__ import annotations

from ft_supervisor.core.placement.selection import Selection
from ft_supervisor.core.protocol.actions import Announce
from ft_supervisor.core.protocol.coordinator_facts import NodesMissing
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.quorum.members import Members

_FIRST = (10.0, 30.0)
_EVERY = 60.0
"""Seconds after the beginning of a term at which the missing nodes are announced: these two, and then each minute."""


class Joining:
    """Of one coordinator's term, which began `since`."""

    def __init__(self, job: Job, members: Members, selection: Selection, since: float) -> None:
        self._job = job
        self._members = members
        self._selection = selection
        self._since = since
        self._due = _FIRST[0]

    def missing(self, now: float) -> NodesMissing | None:
        """Return the nodes that have not come; None if all have."""
        absent = [rank for rank in range(len(self._job.nodes)) if not self._is_here(rank)]
        if not absent:
            return None
        begins = self._selection.begins(self._since)
        until = self._since + self._job.timeouts.join if begins is None else begins
        return NodesMissing(format_ranks(absent), begins is not None, max(0.0, until - now))

    def announce(self, now: float) -> list[Announce]:
        """Announce them when it is time to. For each tick before the first cycle."""
        waited = now - self._since
        if waited < self._due:
            return []
        self._due = next((due for due in _FIRST if due > waited), (waited // _EVERY + 1) * _EVERY)
        missing = self.missing(now)
        return [] if missing is None else [Announce(missing)]

    def _is_here(self, rank: int) -> bool:
        member = self._members.get(rank)
        return member is not None and member.registered and not member.agentless

"""Whether a majority is with the coordinator in charge, without which it decides nothing. All times in seconds."""

from __future__ import annotations

from ft_supervisor.core.lease import Proof
from ft_supervisor.core.model import Roster, Timeouts

PROOF_AGE = 2
"""Times timeouts.coordinator: how old the proof of a majority may be that a decision rests on."""


class Majority:
    """Of one coordinator. `proof` is what it rests on: since when each node was certainly with it."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.proof = Proof()
        self._timeouts = timeouts
        self._since: float | None = None
        self._fenced = float("-inf")

    def look(self, roster: Roster) -> None:
        """Count again, over the members of this list."""
        self._since = self.proof.since(roster)

    def age(self, now: float) -> float | None:
        """Seconds since a majority was certainly there, as last counted; None if it never was."""
        return None if self._since is None else now - self._since

    def is_here(self, roster: Roster, now: float) -> bool:
        """Whether one was there just now."""
        self.look(roster)
        return self._since is not None and now - self._since < PROOF_AGE * self._timeouts.coordinator

    def lost(self, heard: float) -> None:
        """A node is lost that was `heard` last: what ran there may have gone on until its fence was over."""
        self._fenced = max(self._fenced, heard + self._timeouts.fence)

    def is_alone(self) -> bool:
        """Whether nobody else was in charge until every lost node's fence was over: else it may have found another
        coordinator, and go on."""
        return self._since is not None and self._since >= self._fenced

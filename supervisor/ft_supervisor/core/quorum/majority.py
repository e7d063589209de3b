"""Tells whether a majority of the members follows the coordinator in charge. Without one it decides nothing.

All times are seconds of the coordinator's own clock.
"""

from __future__ import annotations

from ft_supervisor.core.protocol.model import Roster, Timeouts
from ft_supervisor.core.quorum.lease import Proof

PROOF_AGE = 2
"""Times timeouts.coordinator: the greatest age of a proof on which a decision may rest."""


class Majority:
    """The majority of one coordinator. `proof`: since when each node has certainly followed it (quorum/lease.py)."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.proof = Proof()
        self._timeouts = timeouts
        self._since: float | None = None
        self._fenced = float("-inf")

    def look(self, roster: Roster) -> None:
        """Count again, among the members of this roster."""
        self._since = self.proof.since(roster)

    def age(self, now: float) -> float | None:
        """Return the seconds since a majority certainly followed, as last counted; None if none ever has."""
        return None if self._since is None else now - self._since

    def is_here(self, roster: Roster, now: float) -> bool:
        """Count again; return whether the newest proof of a majority is young enough for decisions."""
        self.look(roster)
        return self._since is not None and now - self._since < PROOF_AGE * self._timeouts.coordinator

    def lost(self, heard: float) -> None:
        """Note that a node is lost. Its workers may have run until its fence: `fence` after it was last `heard`."""
        self._fenced = max(self._fenced, heard + self._timeouts.fence)

    def no_rival_possible(self) -> bool:
        """Whether a majority followed us after the fence of every lost node: then no such node can have found another
        coordinator and still run its workers."""
        return self._since is not None and self._since >= self._fenced

"""How a verdict becomes the job's: proposed, kept by a majority, written down, claimed, told.

    propose -> keep (a majority) -> settled: Record -> recorded: Conclude -> close

A verdict that somebody knows to be the job's, or that the key or the file holds, is settled at once.
"""

from __future__ import annotations

from ft_supervisor.core.actions import Conclude, Record
from ft_supervisor.core.model import Roster, Verdict
from ft_supervisor.core.roster import quorum
from ft_supervisor.core.summary import Summary

NOTHING = Summary()


class Closing:
    """One coordinator's part in the end. `verdict` is the job's, once it is settled, and `summary` what was known of it
    then."""

    def __init__(self) -> None:
        self.proposal: Verdict | None = None
        self.verdict: Verdict | None = None
        self.summary = NOTHING
        self.claimed = False
        self.closed = False
        self._kept: set[int] = set()

    def propose(self, verdict: Verdict) -> None:
        """The only proposal of this term."""
        self.proposal, self._kept = verdict, set()

    def keep(self, infra_rank: int, roster: Roster, lost: tuple[str, ...], summary: Summary = NOTHING) -> Record | None:
        """A node keeps the proposal; Record it once a majority does."""
        self._kept.add(infra_rank)
        if self.proposal is None or not quorum(roster, self._kept):
            return None
        return self.settle(self.proposal, lost, summary)

    def settle(self, verdict: Verdict, lost: tuple[str, ...], summary: Summary = NOTHING) -> Record | None:
        """This is the job's verdict. The first that is settled stays."""
        if self.verdict is not None:
            return None
        self.verdict, self.summary = verdict, summary
        return Record(verdict, lost, summary)

    def recorded(self, verdict: Verdict) -> Conclude | None:
        """The file holds this, which counts, as everybody outside reads the file."""
        if self.verdict is None or self.claimed:
            return None
        self.verdict, self.claimed = verdict, True
        return Conclude(verdict)

    def close(self, verdict: Verdict) -> None:
        """The key holds this, which counts, as nodes have acted on it."""
        self.verdict, self.closed = verdict, True

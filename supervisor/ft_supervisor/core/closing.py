"""How a verdict becomes the job's: proposed, kept by a majority, written down, claimed, told.

    propose -> keep (a majority) -> settled: Record -> recorded: Conclude -> close

A verdict that somebody knows to be the job's, or that the key or the file holds, is settled at once.
"""

from __future__ import annotations

from ft_supervisor.core.actions import Conclude, Record
from ft_supervisor.core.leadership import Role
from ft_supervisor.core.model import KILL_BOUND, Job, Outcome, Roster, Verdict
from ft_supervisor.core.roster import quorum
from ft_supervisor.core.summary import Summary
from ft_supervisor.core.transitions import check_invariants

NOTHING = Summary()


class Closing:
    """One coordinator's part in the end. `verdict` is the job's, once it is settled, and `summary` what was known of it
    then."""

    def __init__(self) -> None:
        self.proposal: Verdict | None = None
        self.verdict: Verdict | None = None
        self.summary = NOTHING
        self.claimed = False
        self._closed_at: float | None = None
        self._kept: set[int] = set()

    def propose(self, verdict: Verdict) -> None:
        """The only proposal of this term."""
        self.proposal, self._kept = verdict, set()

    def keep(self, infra_rank: int, roster: Roster) -> Verdict | None:
        """A node keeps the proposal, which is to be settled once a majority does."""
        self._kept.add(infra_rank)
        return self.proposal if self.verdict is None and quorum(roster, self._kept) else None

    def settle(self, verdict: Verdict, lost: str, summary: Summary = NOTHING) -> Record | None:
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

    def close(self, verdict: Verdict, now: float) -> None:
        """The key holds this, which counts, as nodes have acted on it."""
        self.verdict, self._closed_at = verdict, now

    @property
    def closed(self) -> bool:
        """Whether that is so: nothing can change any more."""
        return self._closed_at is not None

    def is_over(self, job: Job, now: float) -> bool:
        """Whether the nodes have had the time to end."""
        if self.verdict is None or self._closed_at is None:
            return False
        bound = job.timeouts.close_grace
        if self.verdict.outcome is not Outcome.SUCCESS:
            bound += job.last_grace(self.verdict) + KILL_BOUND
        return now - self._closed_at >= bound

    def validate(self, role: Role) -> None:
        """Raise InvalidState if an invariant does not hold in this role."""
        check_invariants(
            role,
            {
                "a verdict is proposed or known": role is not Role.CLOSING or bool(self.proposal or self.verdict),
                "only one that closes has a proposal": role is Role.CLOSING or self.proposal is None,
                "a claimed verdict is known": not self.claimed or self.verdict is not None,
                "a verdict is claimed before it is told": not self.closed or self.claimed,
            },
        )

"""How a candidate comes to be in charge: promises from a majority of the members.

It asks only once a majority has come to it, so that a node which has merely lost its own way disturbs nobody.
"""

from __future__ import annotations

from collections.abc import Collection

from ft_supervisor.core.messages import Register
from ft_supervisor.core.model import NO_PROMISE, Job, Memory, Roster
from ft_supervisor.core.quorum.roster import coordinator_of, first_roster, next_term, quorum

PATIENCE = 2
"""Times timeouts.coordinator, until a candidate that does not get its promises asks anew with a higher term."""


class Election:
    """`term`: the one that we ask promises for, since `asked_at`, or have without a vote (None)."""

    def __init__(self, job: Job, infra_rank: int, memory: Memory) -> None:
        self._job = job
        self._infra_rank = infra_rank
        self._highest = memory.promise
        self._promised = memory.promise
        self.roster: Roster = memory.roster or first_roster(job)
        self.term: int | None = None
        self.asked_at: float | None = None
        self.promises: dict[int, Register] = {}

    @property
    def elsewhere(self) -> int | None:
        """The term of another coordinator, if our own node knows one: those who come to us had better go there."""
        if self._promised == NO_PROMISE or coordinator_of(self._promised, self._job) == self._infra_rank:
            return None
        return self._promised

    def promised(self, term: int) -> None:
        """Our own node has promised this term, perhaps to us."""
        self._promised = max(self._promised, term)

    def hear(self, message: Register) -> None:
        """Whatever a node says may be of a newer term, or a newer roster, than we have heard of."""
        self._highest = max(self._highest, message.term)
        roster = message.memory.roster
        if roster is not None and roster.stamp > self.roster.stamp:
            self.roster = roster

    def may_ask(self, present: Collection[int]) -> bool:
        """Whether it is worth asking, with these nodes here."""
        return quorum(self.roster, present)

    def ask(self, now: float) -> int:
        """A new term, above all that we have heard of."""
        above = self._highest if self.term is None else max(self._highest, self.term)
        self.term = self._highest = next_term(above, self._infra_rank, self._job)
        self.asked_at, self.promises = now, {}
        return self.term

    def is_above(self, term: int) -> bool:
        """Whether a node with this promise may be asked for ours. Not for a term without a vote: that was for a job
        in which nobody had promised anything."""
        return self.term is not None and self.asked_at is not None and term < self.term

    def promise(self, message: Register) -> bool:
        """A promise; whether they are enough now."""
        self.promises[message.infra_rank] = message
        return quorum(self.roster, self.promises)

    def is_over(self, now: float) -> bool:
        """Whether the promises should have come by now."""
        return self.asked_at is not None and now - self.asked_at >= PATIENCE * self._job.timeouts.coordinator

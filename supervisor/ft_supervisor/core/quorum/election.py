"""Elects a coordinator: a candidate takes charge once a majority of the members has promised its term.

A candidate asks for promises only while a majority is connected to it. Otherwise a node that has lost its own network
would disturb the coordinator in charge. coordinator/leadership.py describes the whole takeover.
"""

from __future__ import annotations

from collections.abc import Collection

from ft_supervisor.core.protocol.messages import Register
from ft_supervisor.core.protocol.model import NO_PROMISE, Job, Memory, Roster
from ft_supervisor.core.quorum.roster import coordinator_of, first_roster, next_term, quorum

PATIENCE = 2
"""A candidate waits for promises for this factor times timeouts.coordinator. Then it asks again, with a higher term."""


class Election:
    """One candidate's view of the election.

    `term`: the term for which the candidate asks promises; None before the first one. `asked_at`: when it began to ask,
    in seconds; None for the term of a fresh job, which needs no promises. `roster`: the newest roster that the
    candidate has received. `promises`: the Registers that promise `term`, by infra_rank.
    """

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
        """The term that our own node has promised to another candidate; None if there is none, or if it is ours.

        The candidate publishes it, so that agents which connect to the candidate turn to that other coordinator.
        """
        if self._promised == NO_PROMISE or coordinator_of(self._promised, self._job) == self._infra_rank:
            return None
        return self._promised

    def promised(self, term: int) -> None:
        """Note that our own node has promised this term, perhaps to us."""
        self._promised = max(self._promised, term)

    def hear(self, message: Register) -> None:
        """Adopt the term and the roster in a node's Register, if they are newer than the ones that we have."""
        self._highest = max(self._highest, message.term)
        roster = message.memory.roster
        if roster is not None and roster.stamp > self.roster.stamp:
            self.roster = roster

    def may_ask(self, present: Collection[int]) -> bool:
        """Whether the present nodes are a majority. Without one it makes no sense to ask for promises."""
        return quorum(self.roster, present)

    def ask(self, now: float) -> int:
        """Begin to ask for promises, and return the term to ask for: a new one of this candidate, above all known ones.

        `now`: the candidate's clock, in seconds.
        """
        above = self._highest if self.term is None else max(self._highest, self.term)
        self.term = self._highest = next_term(above, self._infra_rank, self._job)
        self.asked_at, self.promises = now, {}
        return self.term

    def is_above(self, term: int) -> bool:
        """Whether our term is above `term`, the promise of a node, so that the node may be asked to promise ours.

        Return False for a fresh job's term: it needs no promises, and exists only where no node has promised a term.
        """
        return self.term is not None and self.asked_at is not None and term < self.term

    def promise(self, message: Register) -> bool:
        """Count the promise of our term in this Register, and return whether a majority has promised it."""
        self.promises[message.infra_rank] = message
        return quorum(self.roster, self.promises)

    def is_over(self, now: float) -> bool:
        """Whether the candidate has waited long enough for promises, so that it has to ask again."""
        return self.asked_at is not None and now - self.asked_at >= PATIENCE * self._job.timeouts.coordinator

"""Elects a coordinator: a candidate is in charge once a majority of the members has promised its term.

A candidate asks only when a majority is connected to it, so that a node which has only lost its own network does not
disturb the coordinator in charge. coordinator/leadership.py describes the whole takeover.
"""

from __future__ import annotations

from collections.abc import Collection

from ft_supervisor.core.protocol.messages import Register
from ft_supervisor.core.protocol.model import NO_PROMISE, Job, Memory, Roster
from ft_supervisor.core.quorum.roster import coordinator_of, first_roster, next_term, quorum

PATIENCE = 2
"""Times timeouts.coordinator: how long a candidate waits for promises before it asks again, with a higher term."""


class Election:
    """The election as one candidate sees it. `term`: the one that it asks promises for. `asked_at`: since when, in
    seconds; None for the term of a fresh job, which needs no promises. `roster`: the newest that it has received."""

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
        """Term of the coordinator that our own node follows, published so that agents which connect here go there. None
        if there is none, or if that is us."""
        if self._promised == NO_PROMISE or coordinator_of(self._promised, self._job) == self._infra_rank:
            return None
        return self._promised

    def promised(self, term: int) -> None:
        """Note that our own node has promised this term, perhaps to us."""
        self._promised = max(self._promised, term)

    def hear(self, message: Register) -> None:
        """Take over the term and the roster of a node that knows newer ones."""
        self._highest = max(self._highest, message.term)
        roster = message.memory.roster
        if roster is not None and roster.stamp > self.roster.stamp:
            self.roster = roster

    def may_ask(self, present: Collection[int]) -> bool:
        """Whether the nodes that are present are a majority, so that it is worth asking."""
        return quorum(self.roster, present)

    def ask(self, now: float) -> int:
        """Begin to ask: return a new term, above all known ones."""
        above = self._highest if self.term is None else max(self._highest, self.term)
        self.term = self._highest = next_term(above, self._infra_rank, self._job)
        self.asked_at, self.promises = now, {}
        return self.term

    def is_above(self, term: int) -> bool:
        """Whether our term is above this promise, so that its node may be asked for ours. Never for a fresh job's term,
        which is given without promises, to a job in which no node has promised any."""
        return self.term is not None and self.asked_at is not None and term < self.term

    def promise(self, message: Register) -> bool:
        """Count a promise; return whether a majority has promised."""
        self.promises[message.infra_rank] = message
        return quorum(self.roster, self.promises)

    def is_over(self, now: float) -> bool:
        """Whether the time for the promises is over."""
        return self.asked_at is not None and now - self.asked_at >= PATIENCE * self._job.timeouts.coordinator

"""Whom an agent calls: one candidate at a time, in an order in which those who look for a coordinator soon meet.

A candidate that answers but is not in charge gets `patience` to become it: it does so once a majority has come to it.
"""

from __future__ import annotations

from ft_supervisor.core.actions import Dial
from ft_supervisor.core.events import Connected
from ft_supervisor.core.model import NO_PROMISE, Job, Memory, Node
from ft_supervisor.core.roster import candidates, coordinator_of, first_candidate

ROUNDS_ALONE = 4
"""A coordinator whose last so many rounds no majority has read has lost it; while it has one, it is one or two."""


class CandidateSearch:
    """An agent's connection, as far as it decides anything."""

    def __init__(self, job: Job, node: Node) -> None:
        self._job = job
        self._node = node
        self._candidate: int | None = None
        self._since = 0.0
        self._connected_at = 0.0
        self._round_at = 0.0
        self._waits_until: float | None = None
        self._alone = False
        self._returned = False
        self._news: int | None = None
        self._told = NO_PROMISE
        self._fresh = False
        self.connected = False
        self.connection = 0
        self.round = 0
        self.charged = False
        """Whether the coordinator there has said on this connection that it is in charge."""

    def start(self, memory: Memory, now: float) -> Dial:
        """The first call: for a fresh job the first candidate alone, who may be slower to start than we are."""
        self._since = now
        self._fresh = memory.promise == NO_PROMISE
        if self._fresh:
            return Dial((first_candidate(self._job),))
        return self._call((), memory)

    def lose(self, memory: Memory) -> Dial:
        """The connection is gone, and most often that candidate's coordinator too: it comes last. Should it have been a
        mere hiccup, the others will not be in charge either, and we are back soon."""
        return self._call(self._after(memory), memory)

    def again(self, memory: Memory) -> Dial:
        """The same one, on a new connection."""
        assert self._candidate is not None
        return self._call((self._candidate, *self._after(memory)), memory)

    def connect(self, event: Connected, now: float) -> None:
        """Somebody has answered."""
        self._candidate, self.connection, self.round = event.candidate, event.connection, event.round
        self.connected, self.charged, self._alone = True, False, False
        self._connected_at = self._round_at = now
        self._news = None
        self.wait(now)

    def prepare(self, now: float) -> None:
        """The candidate asks for a promise: it may soon be in charge, and will say so."""
        self.charged = False
        self.wait(now)

    def wait(self, now: float) -> None:
        """Give this candidate time. How much differs from node to node, so that two groups never swap for ever."""
        spread = (self._node.infra_rank * 5 + self.connection * 3) % 8
        self._waits_until = now + self._job.timeouts.coordinator * (0.6 + 0.4 * spread / 8)

    def look(self, round_: int, term: int | None, lease: int, memory: Memory, now: float) -> None:
        """The pulse of the store."""
        self._news = self._elsewhere(term, memory)
        # Without any lease so far it may be waiting for a majority to come, but that may have gone elsewhere.
        long = now - self._connected_at >= self._job.timeouts.node_lost
        self._alone = self.charged and (round_ - lease >= ROUNDS_ALONE if lease else long)
        if round_ != self.round:
            self.round, self._round_at = round_, now
        if self.charged and term == memory.promise:
            self._waits_until = None
        elif self._waits_until is None:
            self.wait(now)

    def _elsewhere(self, term: int | None, memory: Memory) -> int | None:
        """The term of a coordinator that this candidate knows of and we do not, once: it may be dead by now."""
        if term is None or term <= max(memory.promise, self._told) or self.charged:
            return None
        return None if coordinator_of(term, self._job) == self._candidate else term

    def charge(self) -> None:
        """The coordinator has told us what to do."""
        self.charged, self._waits_until, self._returned = True, None, False

    def tick(self, memory: Memory, now: float) -> Dial | None:
        """Call somebody else when this one does not help."""
        timeouts = self._job.timeouts
        if self.connected:
            if self._news is not None:
                self._told, self._news = self._news, None
                return self._call((coordinator_of(self._told, self._job), *self._after(memory)), memory)
            hangs = now - self._round_at >= timeouts.coordinator + 2 * timeouts.heartbeat
            useless = self._waits_until is not None and now >= self._waits_until
            if useless and memory.promise != NO_PROMISE:  # it is awake, and not in charge: no need to ask it again
                self._returned = self._returned or self._candidate == coordinator_of(memory.promise, self._job)
            if hangs or self._alone or useless:
                return self._call(self._after(memory), memory)
        elif self._fresh and now - self._since >= timeouts.node_lost:
            return self._call((), memory)
        return None

    def _after(self, memory: Memory) -> tuple[int, ...]:
        """The others: once the one that was in charge, which may only have been frozen; then those after the last that
        we called."""
        known = candidates(self._job, memory.roster)
        if self._candidate in known:
            at = known.index(self._candidate)
            known = (*known[at + 1 :], *known[:at])
        if self._returned or memory.promise == NO_PROMISE:
            return known
        likely = coordinator_of(memory.promise, self._job)
        if likely == self._candidate:
            return known
        self._returned = True
        return (likely, *known)

    def _call(self, first: tuple[int, ...], memory: Memory) -> Dial:
        likely = () if memory.promise == NO_PROMISE else (coordinator_of(memory.promise, self._job),)
        last = () if self._candidate is None else (self._candidate,)
        self.connected = self.charged = False
        self._fresh = False
        return Dial(tuple(dict.fromkeys((*first, *likely, *candidates(self._job, memory.roster), *last))))

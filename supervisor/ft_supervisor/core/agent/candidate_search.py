"""Decides which coordinator candidate the agent connects to, and when it leaves one for another.

It has one connection at a time. The order in which candidates are tried makes agents that search meet at the same one.
A candidate that answers but is not in charge gets `patience`, as it is in charge once a majority has come to it.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf

from ft_supervisor.core.protocol.actions import Dial
from ft_supervisor.core.protocol.events import Connected
from ft_supervisor.core.protocol.model import NO_PROMISE, Job, Memory, Node
from ft_supervisor.core.quorum.roster import candidates, coordinator_of, first_candidate
from ft_supervisor.core.transitions import Transitions, check_invariants, check_transition

ROUNDS_WITHOUT_MAJORITY = 4
"""A coordinator has lost its majority if no majority has read so many of its last rounds; usually it is one or two."""


class Search(StrEnum):
    """How far the agent's search for a coordinator has come."""

    FRESH = "fresh"
    """No coordinator was ever in charge of the job: the first candidate alone is dialled, as it may start late."""
    DIALLING = "dialling"
    """The candidates are dialled, one after the other, for ever."""
    WAITING = "waiting"
    """A candidate has answered. It gets some time to be in charge."""
    LED = "led"
    """It is in charge, and has sent orders on this connection."""
    DOUBTED = "doubted"
    """It has sent orders, but its store's pulse does not carry the promised term. It gets some time, too."""


_GIVEN_UP = {Search.DIALLING: "the connection is lost | it hangs, has no majority or is not in charge for too long"}
_ASKED = {Search.WAITING: "Prepare: it asks for a promise | a new connection"}

TRANSITIONS: Transitions[Search] = {
    Search.FRESH: {Search.WAITING: "connected", Search.DIALLING: "no answer for node_lost"},
    Search.DIALLING: {Search.WAITING: "connected", Search.DIALLING: "the attempt broke off"},
    Search.WAITING: {Search.LED: "orders of a coordinator in charge", **_ASKED, **_GIVEN_UP},
    Search.LED: {Search.LED: "more orders", Search.DOUBTED: "a pulse without the promised term", **_ASKED, **_GIVEN_UP},
    Search.DOUBTED: {Search.LED: "the pulse carries the term again | orders", **_ASKED, **_GIVEN_UP},
}


class CandidateSearch:
    """One agent's search and connection. All times in seconds."""

    def __init__(self, job: Job, node: Node) -> None:
        self.state = Search.FRESH
        self.connection = 0
        """The number of the newest connection."""
        self.round = 0
        """The newest round of the connected store."""
        self._job = job
        self._node = node
        self._until = inf
        """When the present state is given up; infinite where it may last."""
        self._candidate: int | None = None
        """The candidate that has answered last."""
        self._connected_at = 0.0
        self._round_at = 0.0
        self._without_majority = False
        self._redirect: int | None = None
        """A newer term that the connected candidate knows of: its coordinator is dialled at the next tick."""
        self._redirected = NO_PROMISE
        """The newest term that was followed in this way."""
        self._returned = False
        """Whether the coordinator of the promised term was dialled once more since it was last in charge."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self.state in (Search.WAITING, Search.LED, Search.DOUBTED)

    @property
    def led(self) -> bool:
        """Whether the coordinator has said on this connection that it is in charge."""
        return self.state in (Search.LED, Search.DOUBTED)

    def start(self, memory: Memory, now: float) -> Dial:
        """Return the first Dial. A fresh job waits for its first candidate alone, which may be slow to start."""
        if memory.promise == NO_PROMISE:
            self._until = now + self._job.timeouts.node_lost
            return Dial((first_candidate(self._job),))
        return self._dial((), memory)

    def connect(self, event: Connected, now: float) -> None:
        """Note that a candidate's store has answered."""
        self._candidate, self.connection, self.round = event.candidate, event.connection, event.round
        self._connected_at = self._round_at = now
        self._without_majority, self._redirect = False, None
        self._become(Search.WAITING, self._patience(now))

    def lose(self, memory: Memory) -> Dial:
        """Return what to dial after the connection is lost: that candidate comes last, as its coordinator is probably
        gone. If it is not, the others are not in charge, and the search soon comes back."""
        return self._dial(self._others(memory), memory)

    def again(self, memory: Memory) -> Dial:
        """Return a Dial that begins with the connected candidate, for a new connection to it."""
        assert self._candidate is not None
        return self._dial((self._candidate, *self._others(memory)), memory)

    def prepare(self, now: float) -> None:
        """Note that the candidate asks for a promise: it may soon be in charge, and will send orders then."""
        self._become(Search.WAITING, self._patience(now))

    def confirm(self) -> None:
        """Note that the candidate has sent orders, as only a coordinator in charge does."""
        self._become(Search.LED)
        self._returned = False

    def look(self, round_: int, term: int | None, lease: int, memory: Memory, now: float) -> None:
        """Note the store's pulse (events.Looked)."""
        self._redirect = self._newer(term, memory)
        # Before its first lease it may wait for a majority to come, but the majority may have gone elsewhere.
        long = now - self._connected_at >= self._job.timeouts.node_lost
        self._without_majority = self.led and (round_ - lease >= ROUNDS_WITHOUT_MAJORITY if lease else long)
        if round_ != self.round:
            self.round, self._round_at = round_, now
        if self.led and term == memory.promise:
            self._become(Search.LED)
        elif self.state is Search.LED:
            self._become(Search.DOUBTED, self._patience(now))

    def tick(self, memory: Memory, now: float) -> Dial | None:
        """Return a Dial if the present candidate is to be left."""
        if not self.connected:
            return self._dial((), memory) if now >= self._until else None
        if self._redirect is not None:
            self._redirected = self._redirect
            return self._dial((coordinator_of(self._redirected, self._job), *self._others(memory)), memory)
        timeouts = self._job.timeouts
        hangs = now - self._round_at >= timeouts.coordinator + 2 * timeouts.heartbeat
        useless = now >= self._until
        if useless and memory.promise != NO_PROMISE:  # it answers, and is not in charge: no need to ask it again
            self._returned = self._returned or self._candidate == coordinator_of(memory.promise, self._job)
        if hangs or self._without_majority or useless:
            return self._dial(self._others(memory), memory)
        return None

    def validate(self) -> None:
        """Raise InvalidState if an invariant does not hold."""
        given_up = self.state in (Search.FRESH, Search.WAITING, Search.DOUBTED)
        check_invariants(
            self.state,
            {
                "a connection is with a candidate": not self.connected or self._candidate is not None,
                "a state that may not last is given up some time": given_up == (self._until < inf),
            },
        )

    def _newer(self, term: int | None, memory: Memory) -> int | None:
        """The term of a newer coordinator than the agent knows, if the candidate names one. Each term is followed only
        once, as that coordinator may be dead by now."""
        if term is None or term <= max(memory.promise, self._redirected) or self.led:
            return None
        return None if coordinator_of(term, self._job) == self._candidate else term

    def _patience(self, now: float) -> float:
        """Until when the candidate gets time to be in charge. The time differs from node to node, so that two groups of
        agents do not swap candidates for ever."""
        spread = (self._node.infra_rank * 5 + self.connection * 3) % 8
        return now + self._job.timeouts.coordinator * (0.6 + 0.4 * spread / 8)

    def _others(self, memory: Memory) -> tuple[int, ...]:
        """The other candidates: once the one that was in charge, as it may only have stood still; then in their order,
        beginning after the one that has answered last."""
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

    def _dial(self, first: tuple[int, ...], memory: Memory) -> Dial:
        """Dial these first, then all others, the one that has answered last at the end."""
        likely = () if memory.promise == NO_PROMISE else (coordinator_of(memory.promise, self._job),)
        last = () if self._candidate is None else (self._candidate,)
        self._become(Search.DIALLING)
        return Dial(tuple(dict.fromkeys((*first, *likely, *candidates(self._job, memory.roster), *last))))

    def _become(self, state: Search, until: float = inf) -> None:
        check_transition(TRANSITIONS, self.state, state)
        self.state, self._until = state, until

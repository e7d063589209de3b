"""A node's part when one of its workers hangs, or one of another node: it notices, tells, and gives evidence.

The workers run on meanwhile, as all of the cycle are looked at before any is stopped. The coordinator ends this with a
Stop. If none comes the agent blames the worker itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ft_supervisor.core.agent.failures import KEPT, truncate_evidence
from ft_supervisor.core.agent.follower import Follower
from ft_supervisor.core.agent.hang import HangDetector
from ft_supervisor.core.protocol import agent_facts as facts
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import AgentAction, Announce, GatherEvidence
from ft_supervisor.core.protocol.events import EvidenceTaken
from ft_supervisor.core.protocol.evidence import ANSWERS
from ft_supervisor.core.protocol.model import Cycle, Failure

PATIENCE = 2 * ANSWERS + 1.5
"""Seconds from the notice until the agent goes on by itself: room for a round of the coordinator, and for a takeover
with another round."""
OWN = 0
"""The number of the evidence that the agent takes for itself."""


class HangNotice:
    """That of one agent. `do` takes the actions, in order; `ignores` tells, and announces, whether a rule says to go on
    as if there were no such failure. All times in seconds."""

    def __init__(
        self,
        hangs: HangDetector,
        follower: Follower,
        do: Callable[[AgentAction], None],
        ignores: Callable[[Failure], bool],
    ) -> None:
        self._hangs = hangs
        self._follower = follower
        self._do = do
        self._ignores = ignores
        self.begin()

    def begin(self) -> None:
        """Forget all: another cycle begins."""
        self.failures: tuple[Failure, ...] = ()
        """Of the workers that hang, while they run."""
        self._until: float | None = None
        self._asked: tuple[int, int] | None = None
        self._answer: EvidenceTaken | None = None

    def tick(self, cycle: Cycle, now: float) -> tuple[Failure, ...]:
        """Look for workers that hang. Return those that have failed now, as no coordinator has stopped them."""
        if not self.failures and (hung := tuple(self._hangs.tick(now))):
            self.failures, self._until = hung, now + PATIENCE
            for failure in hung:
                self._do(Announce(facts.WorkerHangs(cycle, failure)))
            self._follower.send(messages.HangNoticed, cycle=cycle, failures=truncated(hung))
        if self._until is None or now < self._until:
            return ()
        self._until = None
        if self._answer is not None:
            return self.failures
        self._do(GatherEvidence(cycle, OWN))
        return ()

    def asked(self, wanted: messages.TakeEvidence, now: float) -> None:
        """Take evidence for the coordinator; what it has been told already is told again."""
        asked = wanted.term, wanted.number
        if asked != self._asked:
            self._asked, self._answer = asked, None
            self._do(GatherEvidence(wanted.cycle, wanted.number, wanted.gently))
        elif self._answer is not None:
            self._tell(self._answer, now)

    def taken(self, taken: EvidenceTaken, now: float) -> tuple[Failure, ...]:
        """Tell the coordinator of this evidence. Return the workers that have failed, if the agent took it itself."""
        words = dict(taken.rules), dict(taken.last_lines)
        self.failures = tuple(_with_words(failure, *words) for failure in self.failures)
        if taken.number != OWN and (self._asked is None or taken.number != self._asked[1]):
            return ()
        if taken.number != OWN:
            self._answer = taken
            self._tell(taken, now)
        self.failures = tuple(failure for failure in self.failures if not self._ignores(failure))
        if not self.failures:
            self._until = None
            self._hangs.forget()
        return self.failures if taken.number == OWN else ()

    def _tell(self, taken: EvidenceTaken, now: float) -> None:
        told = truncate_evidence(taken, self._hangs.silent(now))
        self._follower.send(messages.Evidence, cycle=taken.cycle, number=taken.number, **told)


def truncated(failures: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """Return so many of these as one message has room for; their last lines come with the evidence."""
    return tuple(replace(failure, last_lines="") for failure in failures[:KEPT])


def _with_words(failure: Failure, rules: Mapping[int, tuple[int, ...]], lines: Mapping[int, str]) -> Failure:
    rank = failure.local_rank
    return replace(failure, rules=rules.get(rank, failure.rules), last_lines=lines.get(rank, failure.last_lines))

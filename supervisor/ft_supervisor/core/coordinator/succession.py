"""Who trains in the next cycle, and how long a job waits when there are too few nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ft_supervisor.core.coordinator.policy import Decision
from ft_supervisor.core.placement.selection import Selection
from ft_supervisor.core.protocol.coordinator_facts import TooFewNodes
from ft_supervisor.core.protocol.model import Again, Ending, Job, Outcome, Verdict
from ft_supervisor.core.protocol.settings import OnExhausted


@dataclass(frozen=True)
class Successors:
    """What was found: a `group` (infra_ranks by group_rank), or a `verdict`, or that the job waits; `shortage` is to be
    announced then, once. `choice`: why this group; `after`: the reason of the decision that it follows, "" for none."""

    group: tuple[int, ...] | None = None
    choice: str = ""
    after: str = ""
    verdict: Verdict | None = None
    shortage: TooFewNodes | None = None


class Succession:
    """Of one coordinator's term. All times in seconds."""

    def __init__(self, job: Job, selection: Selection) -> None:
        self._timeouts = job.timeouts
        self._exhausted = job.settings.placement.on_exhausted
        self._selection = selection
        self._short_since: float | None = None

    def first(self, now: float) -> Successors:
        """The nodes of a fresh job's first cycle."""
        found = self._selection.first(now)
        return Successors(found.group, f"enough nodes are here: {found.reason}")

    def after(self, former: Sequence[int], decision: Decision, now: float) -> Successors:
        """The nodes of the cycle after that of `former`, which has ended with this decision."""
        waited = 0.0 if self._short_since is None else now - self._short_since
        found = self._selection.next(former, now, waited)
        if found.group is None:
            return self._too_few(found.reason, decision, now)
        self._short_since = None
        return Successors(found.group, found.reason, decision.reason)

    def _too_few(self, reason: str, decision: Decision, now: float) -> Successors:
        """Give up, but only after a last chance for a node whose agent is just being replaced, or for as long as the
        policy says."""
        if self._selection.coming(now):
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
            return Successors(shortage=TooFewNodes(reason, self._exhausted))
        elif now - self._short_since >= self._patience():
            again = Again.REQUEUE if self._exhausted is OnExhausted.REQUEUE else Again.OPEN
            reason = f"too few nodes: {reason}; {decision.reason}"
            return Successors(verdict=Verdict(Outcome.INTERRUPTED, reason, again, Ending.TOO_FEW_NODES))
        return Successors()

    def _patience(self) -> float:
        return self._timeouts.join if self._exhausted is OnExhausted.WAIT else self._timeouts.node_lost

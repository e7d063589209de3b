"""Announces what becomes of the cycles, and keeps the newest decision for `status`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ft_supervisor.core.model import Cycle, Job
from ft_supervisor.core.policy import Decision, Trouble
from ft_supervisor.core.protocol.coordinator_facts import (
    CoordinatorFact,
    CycleFailed,
    CycleStarted,
    Decided,
    FirstFailure,
    NodePromoted,
    NodesSuspected,
)


@dataclass(frozen=True)
class LastDecision:
    """The newest decision: `fact`, announced at `at` (seconds of the coordinator's own clock). Of a cycle that has
    started `decided` is the decision that it follows, if there is one in this term."""

    fact: CycleStarted | CycleFailed | Decided
    at: float
    decided: Decided | None = None


class Telling:
    """Announcements of one coordinator's term. All times in seconds."""

    def __init__(self, job: Job, announce: Callable[[CoordinatorFact], None]) -> None:
        self.last: LastDecision | None = None
        self._job = job
        self._announce = announce

    def began(self, cycle: Cycle, former: Sequence[int], group: Sequence[int], reason: str, now: float) -> None:
        """`cycle` of the nodes of `group` begins, after one of those of `former`; both by group_rank."""
        started = CycleStarted(cycle, tuple(former), tuple(group), reason)
        last = self.last.fact if self.last else None
        self.last = LastDecision(started, now, last if isinstance(last, Decided) else None)
        self._announce(started)
        if len(group) == len(former):
            for group_rank, (old, new) in enumerate(zip(former, group, strict=True)):
                if old != new:
                    self._announce(NodePromoted(new, old, group_rank))

    def failed(self, cycle: Cycle | None, trouble: Trouble, now: float) -> None:
        """The cycle cannot go on; what that leads to is decided later."""
        failed = CycleFailed(cycle, trouble.reason, trouble.cause, trouble.infra_rank, trouble.growth)
        self.last = LastDecision(failed, now)
        self._announce(failed)

    def suspects(self, nodes: Collection[int]) -> None:
        """These have not answered the probe."""
        if nodes:
            self._announce(NodesSuspected(tuple(sorted(nodes)), self._job.timeouts.probe))

    def decided(
        self, decision: Decision, trouble: Trouble | None, cycle: Cycle | None, group: Sequence[int], now: float
    ) -> None:
        """What the end of this cycle of `group` leads to. `trouble`: the one that decides."""
        if trouble is not None:
            self._first_failure(trouble, cycle, group)
        decided = Decided(
            cycle,
            decision.response,
            decision.verdict is not None,
            decision.reason,
            trouble.cause if trouble is not None else None,
            decision.rule,
            decision.ledger.used,
            tuple(sorted(decision.replaced)),
            decision.delay,
            trouble is not None and trouble.growth,
        )
        self.last = LastDecision(decided, now)
        self._announce(decided)

    def _first_failure(self, trouble: Trouble, cycle: Cycle | None, group: Sequence[int]) -> None:
        """What a person looks for first: whose failure it was that decides, and the last that it printed."""
        if trouble.infra_rank is None or (failure := trouble.failure) is None:
            return
        node, per_node = trouble.infra_rank, self._job.per_node
        known = cycle is not None and node in group and 0 <= failure.local_rank < per_node
        rank = group.index(node) * per_node + failure.local_rank if known else None
        self._announce(FirstFailure(cycle, rank, node, failure))

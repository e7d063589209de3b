"""Announces what becomes of the cycles, and keeps the newest decision for `status`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ft_supervisor.core.coordinator.failure_decision import FailureDecision
from ft_supervisor.core.coordinator.policy import Decision, Trouble
from ft_supervisor.core.protocol.actions import Announce
from ft_supervisor.core.protocol.coordinator_facts import (
    CycleFailed,
    CycleStarted,
    Decided,
    FailuresExplained,
    FirstFailure,
    NodePromoted,
    NodesSuspected,
)
from ft_supervisor.core.protocol.model import Cycle, Job


@dataclass(frozen=True)
class LastDecision:
    """The newest decision: `fact`, announced at `at` (seconds of the coordinator's own clock). Of a cycle that has
    started `decided` is the decision that it follows, if there is one in this term."""

    fact: CycleStarted | CycleFailed | Decided
    at: float
    decided: Decided | None = None


class Announcements:
    """Those of one coordinator's term. All times in seconds."""

    def __init__(self, job: Job) -> None:
        self.last: LastDecision | None = None
        self._job = job

    def began(self, started: CycleStarted, now: float) -> list[Announce]:
        """Announce a cycle, and the spares that it has promoted."""
        last = self.last.fact if self.last else None
        self.last = LastDecision(started, now, last if isinstance(last, Decided) else None)
        promoted: list[NodePromoted] = []
        if len(started.group) == len(started.former):
            places = enumerate(zip(started.former, started.group, strict=True))
            promoted = [NodePromoted(new, old, group_rank) for group_rank, (old, new) in places if old != new]
        return [Announce(started), *map(Announce, promoted)]

    def failed(self, cycle: Cycle | None, trouble: Trouble, now: float) -> Announce:
        """Announce that the cycle cannot go on; what that leads to is decided later."""
        failed = CycleFailed(cycle, trouble.reason, trouble.cause, trouble.infra_rank, trouble.growth)
        self.last = LastDecision(failed, now)
        return Announce(failed)

    def suspects(self, nodes: Collection[int]) -> Announce:
        """Announce the nodes that have not answered the probe."""
        return Announce(NodesSuspected(tuple(sorted(nodes)), self._job.timeouts.probe))

    def decided(
        self, decision: Decision, failure: FailureDecision, cycle: Cycle | None, group: Sequence[int], now: float
    ) -> list[Announce]:
        """Announce what the end of this cycle of `group` leads to, with the first failure if there is one, and after
        the loss of a node how many failures are its consequences."""
        trouble = failure.trouble
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
            decision.how,
            decision.why,
            decision.spent,
        )
        self.last = LastDecision(decided, now)
        first: FirstFailure | FailuresExplained | None = None
        if trouble is not None and failure.consequences and trouble.infra_rank is not None:
            first = FailuresExplained(cycle, trouble.infra_rank, failure.consequences)
        elif trouble is not None:
            first = self._first_failure(trouble, cycle, group)
        return [Announce(fact) for fact in (first, decided) if fact is not None]

    def _first_failure(self, trouble: Trouble, cycle: Cycle | None, group: Sequence[int]) -> FirstFailure | None:
        """Whose failure decided, and the last lines that this worker printed."""
        if trouble.infra_rank is None or (failure := trouble.failure) is None:
            return None
        node, per_node = trouble.infra_rank, self._job.per_node
        known = cycle is not None and node in group and 0 <= failure.local_rank < per_node
        rank = group.index(node) * per_node + failure.local_rank if known else None
        return FirstFailure(cycle, rank, node, failure)

"""The log lines of the cycles' decisions, and the newest decision for `status`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ft_supervisor.core.actions import Log, log
from ft_supervisor.core.coordinator.policy import Decision, LastDecision, Trouble
from ft_supervisor.core.model import Cycle, Job

MOST_NAMES = 8


class Announcements:
    """Those of one coordinator's term. `last`: its newest decision. All times in seconds."""

    def __init__(self, job: Job) -> None:
        self.last: LastDecision | None = None
        self._job = job

    def names(self, nodes: Sequence[int]) -> str:
        """Return the names of these infra_ranks, the first MOST_NAMES of them."""
        more = f" and {len(nodes) - MOST_NAMES} more" if len(nodes) > MOST_NAMES else ""
        return ",".join(self._job.nodes[node] for node in nodes[:MOST_NAMES]) + more

    def began(self, cycle: Cycle, former: Sequence[int], group: Sequence[int], reason: str, now: float) -> list[Log]:
        """Announce that `cycle` begins with the nodes of `group`, after those of `former`; both by group_rank."""
        what, rule = (self.last.what, self.last.rule) if self.last else ("cycle_started", None)
        self.last = LastDecision(what, reason, rule, cycle, now)
        before = set(former)
        new = [node for node in group if node not in before]
        line = log("cycle_started", cycle=cycle, nodes=len(group), new=self.names(new) or None, reason=reason)
        return [line, *(self._promotions(former, group) if len(group) == len(former) else [])]

    def _promotions(self, former: Sequence[int], group: Sequence[int]) -> list[Log]:
        names = self._job.nodes
        return [
            log("promoted", node=names[new], instead_of=names[old], group_rank=group_rank)
            for group_rank, (old, new) in enumerate(zip(former, group, strict=True))
            if old != new
        ]

    def failed(self, cycle: Cycle | None, reason: str, now: float) -> Log:
        """Announce that the cycle cannot go on; what that leads to is decided later."""
        self.last = LastDecision("cycle_failed", reason, None, cycle, now)
        return log("cycle_failed", "warning", cycle=cycle, reason=reason)

    def suspects(self, nodes: Collection[int]) -> Log:
        """Announce the nodes that have not answered the probe."""
        reason = f"no answer within {self._job.timeouts.probe:g} s"
        return log("suspect", "warning", nodes=self.names(sorted(nodes)), reason=reason)

    def decided(
        self,
        decision: Decision,
        trouble: Trouble | None,
        where: str | None,
        cycle: Cycle | None,
        group: Sequence[int],
        now: float,
    ) -> list[Log]:
        """Announce what the end of this cycle of `group` leads to, with the first failure if there is one.

        `trouble`: the one that decides. `where`: the place of the rule that answers it.
        """
        what = decision.response.value if decision.verdict is None else "gives_up"
        self.last = LastDecision(what, decision.reason, where, cycle, now)
        line = log(
            what,
            "warning",
            cycle=cycle,
            reason=decision.reason,
            cause=trouble.cause if trouble is not None else None,
            rule=where,
            used=decision.ledger.used,
            replaced=self.names(sorted(decision.replaced)) or None,
            pause=round(decision.delay, 1) or None,
        )
        return [*(self._first_failure(trouble, cycle, group) if trouble is not None else []), line]

    def _first_failure(self, trouble: Trouble, cycle: Cycle | None, group: Sequence[int]) -> list[Log]:
        """Whose failure decided, and the last lines that this worker printed."""
        if trouble.infra_rank is None or (failure := trouble.failure) is None:
            return []
        node, per_node = trouble.infra_rank, self._job.per_node
        known = cycle is not None and node in group and 0 <= failure.local_rank < per_node
        rank = group.index(node) * per_node + failure.local_rank if known else None
        line = log(
            "first_failure",
            "warning",
            cycle=cycle,
            rank=rank,
            node=self._job.nodes[node],
            failure=str(failure),
            log=self._job.log_file(cycle, rank) if cycle is not None and rank is not None else None,
            last_lines=failure.last_lines or None,
        )
        return [line]

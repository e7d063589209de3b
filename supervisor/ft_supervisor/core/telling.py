"""What people are told of the cycles: a log line for each decision, and the newest of these for `status`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ft_supervisor.core import words
from ft_supervisor.core.model import Cycle, Job
from ft_supervisor.core.policy import Decision, Told, Trouble

MOST_NAMES = 8


class Log(Protocol):
    """One line of the log."""

    def __call__(self, event: str, level: str = "info", /, **fields: object) -> None:
        """Its fields; None values are left out."""


class Telling:
    """Of one coordinator's term. `told`: its newest decision. All times in seconds."""

    def __init__(self, job: Job, log: Log) -> None:
        self.told: Told | None = None
        self._job = job
        self._log = log

    def names(self, nodes: Sequence[int]) -> str:
        """Of infra_ranks, the first MOST_NAMES of them."""
        return words.names([self._job.nodes[node] for node in nodes[:MOST_NAMES]], len(nodes), ",")

    def began(self, cycle: Cycle, former: Sequence[int], group: Sequence[int], reason: str, now: float) -> None:
        """`cycle` of the nodes of `group` begins, after one of those of `former`; both by group_rank."""
        what, rule = (self.told.what, self.told.rule) if self.told else ("cycle_started", None)
        self.told = Told(what, reason, rule, cycle, now)
        before = set(former)
        new = [node for node in group if node not in before]
        self._log("cycle_started", cycle=cycle, nodes=len(group), new=self.names(new) or None, reason=reason)
        if len(group) == len(former):
            self._promotions(former, group)

    def _promotions(self, former: Sequence[int], group: Sequence[int]) -> None:
        names = self._job.nodes
        for group_rank, (old, new) in enumerate(zip(former, group, strict=True)):
            if old != new:
                self._log("promoted", node=names[new], instead_of=names[old], group_rank=group_rank)

    def failed(self, cycle: Cycle | None, reason: str, now: float) -> None:
        """The cycle cannot go on; what that leads to is decided later."""
        self.told = Told("cycle_failed", reason, None, cycle, now)
        self._log("cycle_failed", "warning", cycle=cycle, reason=reason)

    def suspects(self, nodes: Collection[int]) -> None:
        """These have not answered the probe."""
        if nodes:
            reason = f"no answer within {self._job.timeouts.probe:g} s"
            self._log("suspect", "warning", nodes=self.names(sorted(nodes)), reason=reason)

    def decided(
        self,
        decision: Decision,
        trouble: Trouble | None,
        where: str | None,
        cycle: Cycle | None,
        group: Sequence[int],
        now: float,
    ) -> None:
        """What the end of this cycle of `group` leads to. `trouble`: the one that decides; `where` its rule is."""
        if trouble is not None:
            self._first_failure(trouble, cycle, group)
        what = decision.response.value if decision.verdict is None else "gives_up"
        self.told = Told(what, decision.reason, where, cycle, now)
        self._log(
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

    def _first_failure(self, trouble: Trouble, cycle: Cycle | None, group: Sequence[int]) -> None:
        """What a person looks for first: whose failure it was that decides, and the last that it printed."""
        if trouble.infra_rank is None or (failure := trouble.failure) is None:
            return
        node, per_node = trouble.infra_rank, self._job.per_node
        known = cycle is not None and node in group and 0 <= failure.local_rank < per_node
        rank = group.index(node) * per_node + failure.local_rank if known else None
        self._log(
            "first_failure",
            "warning",
            cycle=cycle,
            rank=rank,
            node=self._job.nodes[node],
            failure=str(failure),
            log=self._job.log_file(cycle, rank) if cycle is not None and rank is not None else None,
            last_lines=failure.last_lines or None,
        )

"""Selects the nodes of the next cycle, and decides how long to wait for more nodes. All times are in seconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ft_supervisor.core.node_list import fold
from ft_supervisor.core.placement.avoidance import choose
from ft_supervisor.core.placement.placement import Assignment, FitNode
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.settings import OnExhausted
from ft_supervisor.core.quorum.members import Members


class Selection:
    """Selects active nodes among the members. The caller sets `eligible`, `excluded` and `draining`."""

    def __init__(self, job: Job, members: Members) -> None:
        self.eligible: frozenset[int] = frozenset()
        """Infra_ranks of members that any later coordinator is certain to ask. Only these get work."""
        self.excluded: frozenset[int] = frozenset()
        """Infra_ranks of nodes that a rule has excluded."""
        self.draining: frozenset[int] = frozenset()
        """Infra_ranks of nodes that Slurm drains. They are chosen only if there are too few others."""
        self._job = job
        self._members = members
        self._settings = job.settings.placement
        self._enough_since: float | None = None
        self._roomy_since: float | None = None

    @property
    def least(self) -> int:
        """The smallest number of active nodes that the policy allows."""
        return self._job.active if self._settings.least is None else self._settings.least

    def healthy(self, now: float) -> set[int]:
        """Return the infra_ranks of the nodes that can be chosen now."""
        return self._fit(self._members.healthy(now, self._job.timeouts.coordinator)) & self.eligible

    def unfit(self, now: float) -> int:
        """Return how many of the present nodes can never be chosen: they are excluded or unhealthy."""
        here = self._members.present(now, self._job.timeouts.coordinator)
        return len(here) - len(self._fit(here))

    def coming(self, now: float) -> bool:
        """Whether it is worth waiting: a healthy node is not eligible yet, or a node may still answer or be lost."""
        silence = self._job.timeouts.coordinator
        early = self._fit(self._members.healthy(now, silence)) - self.eligible
        return bool(early) or self._members.undecided(now, silence)

    def enough(self, since: float, now: float) -> bool:
        """Whether a fresh job begins now, with the nodes that are healthy. `since`: when it began to wait for nodes.

        At least `least` nodes have to be healthy, and no node may run workers. The job begins when all nodes have come,
        when there have been enough for `node_lost`, or `join` after `since`.
        """
        timeouts, healthy = self._job.timeouts, self.healthy(now)
        if len(healthy) < self.least or self._members.anybody_runs():
            self._enough_since = None
            return False
        self._enough_since = now if self._enough_since is None else self._enough_since
        waited = now - self._enough_since >= timeouts.node_lost or now - since >= timeouts.join
        return waited or len(healthy) + self.unfit(now) == len(self._job.nodes)

    def begins(self, since: float) -> float | None:
        """Return when a fresh job begins without the nodes that are missing; None while too few are healthy."""
        if self._enough_since is None:
            return None
        return min(self._enough_since + self._job.timeouts.node_lost, since + self._job.timeouts.join)

    def too_few(self, now: float) -> str:
        """Return the reason, for people, why a fresh job ends whose nodes have not come in time."""
        unfit = self.unfit(now)
        fit = sum(member.here for member in self._members) - unfit
        others = f", and {unfit} more that may not train" if unfit else ""
        text = f"too few nodes: {fit} of {self.least} came within {self._job.timeouts.join:g} s{others}"
        never = [name for rank, name in enumerate(self._job.nodes) if self._members.get(rank) is None]
        left = [self._job.nodes[rank] for rank in sorted(m.node.infra_rank for m in self._members if not m.here)]
        return "; ".join([text, *_said(never, "never came"), *_said(left, "left again")])

    def first(self, now: float) -> Assignment:
        """Return the active nodes of a fresh job. `Assignment.group` is None if there are too few."""
        return self._assign((), self.healthy(now), self.least)

    def next(self, former: Sequence[int], now: float, waited: float) -> Assignment:
        """Return the active nodes of the cycle after the one with the nodes `former`.

        There are fewer than before only where the policy allows it. `waited`: for how many seconds there have been too
        few nodes, and none that may still come. `Assignment.group` is None if there are too few.
        """
        exhausted = self._settings.on_exhausted
        shrinks = (exhausted is OnExhausted.SHRINK and not self.coming(now)) or (
            exhausted is OnExhausted.WAIT and waited >= self._job.timeouts.join
        )
        least = self.least if shrinks else max(len(former), self.least)
        healthy = self.healthy(now)
        found = self._assign(former, healthy - self.draining, least)
        if found.group is None and self.draining & healthy:  # a node that will be taken away is better than none
            found = self._assign(former, healthy, least)
        return found

    def can_replace(self, leaving: Collection[int], former: Sequence[int], now: float) -> bool:
        """Whether spares can take the places of the nodes `leaving` in the group `former`."""
        stay = (self._present(now) | set(former)) - set(leaving) - self.draining
        return self._assign(former, stay, len(former)).group is not None

    def may_go(self, failing: Collection[int], former: Sequence[int], now: float) -> bool:
        """Whether to replace the nodes `failing`, which fail too often, in the group `former`.

        True if other nodes can take their places, or if the policy does not fail a job with too few nodes. Otherwise
        the replacement would only end the job.
        """
        if self._settings.on_exhausted is not OnExhausted.FAIL:
            return True
        others = self.healthy(now) - set(failing) - self.draining
        return self._assign(former, others, max(len(former), self.least)).group is not None

    def can_grow(self, group: Sequence[int], now: float) -> int | None:
        """Return the number of active nodes to which the group can grow.

        Return None until that has been possible for `node_lost` seconds without a break.
        """
        present = self._present(now)
        size = 0
        if len(group) < self._job.active and len(present - set(group)) >= self._settings.segment:
            size = len(self._assign(group, present - self.draining, len(group)).group or ())
        if size <= len(group):
            self._roomy_since = None
        elif self._roomy_since is None:
            self._roomy_since = now
        elif now - self._roomy_since >= self._job.timeouts.node_lost:
            return size
        return None

    def _present(self, now: float) -> set[int]:
        return self._fit(self._members.present(now, self._job.timeouts.coordinator)) & self.eligible

    def _fit(self, nodes: set[int]) -> set[int]:
        return {rank for rank in nodes if rank not in self.excluded and self._members[rank].problem is None}

    def _assign(self, former: Sequence[int], nodes: Collection[int], least: int) -> Assignment:
        candidates = [
            FitNode(rank, self._job.nodes[rank], self._members[rank].node.domain_id) for rank in sorted(nodes)
        ]
        return choose(
            candidates,
            former,
            self._job.active,
            self._settings,
            domains=self._members.domains(),
            least=least,
            names=self._job.nodes,
        )


def _said(names: Sequence[str], what: str) -> list[str]:
    return [f"{fold(names)} {what}"] if names else []

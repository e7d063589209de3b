"""Keeps the last events of a job that people may want to see, for `status --watch`."""

from __future__ import annotations

from collections import deque

from ft_supervisor.core.node_list import fold
from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.words import count, rung
from ft_supervisor.run_folder.snapshot import EVENTS, EventStatus


class RecentEvents:
    """The last EVENTS of one coordinator. `node`: its node's name."""

    def __init__(self, job: Job, node: str) -> None:
        self._job = job
        self._node = node
        self._kept: deque[EventStatus] = deque(maxlen=EVENTS)

    def note(self, fact: Fact, wall: float) -> None:
        """Keep the fact, if people may want to see it. `wall`: seconds since the epoch."""
        if text := self._text(fact):
            self._kept.append(EventStatus(wall, text))

    @property
    def newest(self) -> tuple[EventStatus, ...]:
        """The events in order, the newest last."""
        return tuple(self._kept)

    def _text(self, fact: Fact) -> str:
        match fact:
            case facts.TookCharge(term) if fact.takeover:
                return f"{self._node} took over as coordinator, term {term}"
            case facts.NodeLost(infra_rank, bound=bound):
                return facts.why_lost(self._job.nodes[infra_rank], bound)
            case facts.NodeUnhealthy(infra_rank, problem):
                return f"{self._job.nodes[infra_rank]} is unhealthy: {problem.reason}"
            case facts.CycleFailed(cycle, reason, growth=growth):
                return f"cycle {cycle} {'ends' if growth else 'failed'}: {reason}"
            case facts.Decided(gives_up=False):
                how = " ".join(each for each in (fact.response.value, rung(fact.how or "", fact.why or "")) if each)
                without = fold([self._job.nodes[node] for node in fact.replaced])
                return f"{how}, without {without}" if without else how
            case facts.CycleStarted(cycle, group=group):
                return f"cycle {cycle} began on {count(len(group), 'node')}"
            case facts.TooFewNodes(reason):
                return reason
            case facts.VerdictProposed(verdict):
                return f"the job ends: {verdict.outcome.value}: {verdict.reason}"
            case _:
                return ""

"""The core with one rule of the cluster's policy broken."""

from __future__ import annotations

from ft_supervisor.core import messages
from ft_supervisor.core.agent import AgentMachine
from ft_supervisor.core.cycles import Cycles
from ft_supervisor.core.members import Member
from ft_supervisor.core.model import Problem
from ft_supervisor.core.selection import Selection


class ChoosesTheExcluded(Selection):
    def _fit(self, nodes: set[int]) -> set[int]:
        self.excluded = frozenset()
        return super()._fit(nodes)


class ChoosesTheUnhealthy(Selection):
    def _fit(self, nodes: set[int]) -> set[int]:
        return {rank for rank in nodes if rank not in self.excluded}


class RunsWhateverTheChecksSay(AgentMachine):
    def _checked(self, cycle: str, problem: Problem | None, now: float) -> None:
        super()._checked(cycle, None, now)


class DecidesBeforeAllHaveStopped(Cycles):
    """The next cycle begins as soon as its cause is known."""

    def _hear_active(
        self,
        message: messages.WorkersFailed | messages.WorkersSucceeded | messages.Stopping,
        member: Member,
        now: float,
    ) -> None:
        super()._hear_active(message, member, now)
        if isinstance(message, messages.WorkersFailed):
            for other in self._members:
                other.stopped()

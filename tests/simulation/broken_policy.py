"""Parts of the core with one broken rule of the cluster's policy each."""

from __future__ import annotations

from dataclasses import replace

from ft_supervisor.core.agent.lifecycle import Lifecycle
from ft_supervisor.core.coordinator.cycles import Cycles
from ft_supervisor.core.coordinator.policy import Trouble
from ft_supervisor.core.coordinator.start_crash import StartCrash
from ft_supervisor.core.placement.selection import Selection
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.model import Cycle, Failure, Problem
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.quorum.members import Member


class ChoosesTheExcluded(Selection):
    """Chooses nodes that a rule has excluded."""

    def _fit(self, nodes: set[int]) -> set[int]:
        self.excluded = frozenset()
        return super()._fit(nodes)


class ChoosesTheUnhealthy(Selection):
    """Chooses nodes that have reported a problem."""

    def _fit(self, nodes: set[int]) -> set[int]:
        return {rank for rank in nodes if rank not in self.excluded}


class IgnoresTheChecks(Lifecycle):
    """Starts workers although a check has failed."""

    def checked(self, cycle: str, problem: Problem | None, now: float) -> None:
        super().checked(cycle, None, now)


class ChargesForTheNodesHealth(Cycles):
    """Charges a restart for a failed check, as if a worker had failed."""

    def _trouble(self, trouble: Trouble, now: float) -> None:
        super()._trouble(replace(trouble, charged=trouble.charged or trouble.cause is Cause.HEALTH), now)


class OneNodeIsEnough(StartCrash):
    """Ends the job when one node's workers have crashed at their start twice."""

    @property
    def everywhere(self) -> bool:
        return self.recurs


class BlamesItsWorkers(Lifecycle):
    """Reports workers that cannot be started as failed workers."""

    def cannot_start(self, cycle: Cycle, reason: str, now: float) -> None:
        self.exited(cycle, (Failure(self._node.infra_rank, 0, exit_code=126, message=reason),), now)


class DecidesBeforeAllHaveStopped(Cycles):
    """Begins the next cycle as soon as one node has reported a failure."""

    def _hear_active(
        self,
        message: messages.OfWorkers,
        member: Member,
        now: float,
    ) -> None:
        super()._hear_active(message, member, now)
        if isinstance(message, messages.WorkersFailed):
            for other in self._members:
                other.stopped()

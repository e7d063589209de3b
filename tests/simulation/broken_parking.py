"""The core with one rule broken about restarts in the same processes."""

from __future__ import annotations

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.agent.lifecycle import Lifecycle
from ft_supervisor.core.agent.node_workers import NodeWorkers, StopOrders, WorkerState
from ft_supervisor.core.coordinator.current_cycle import CurrentCycle
from ft_supervisor.core.coordinator.failure_decision import FailureDecision
from ft_supervisor.core.coordinator.policy import Decision, MayGo
from ft_supervisor.core.protocol import actions
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.settings import InProcessBudget


class TakesLeavingWorkersForParked(NodeWorkers):
    """Reports workers as gone while they are still leaving their function."""

    def stop(self, cycle: Cycle, grace: float, signal: str, now: float, *, park: bool = False) -> StopOrders:
        orders = super().stop(cycle, grace, signal, now, park=park)
        for worker in self._workers.values():
            if worker.asked:
                worker.state = WorkerState.PARKED
        return orders

    def quiesced(self, local_rank: int, found: str = "") -> None:
        """Ignore the late report."""


class BelievesItsWorkers(NodeWorkers):
    """Takes a worker's report that it is parked as true, though a process that it has started goes on."""

    def quiesced(self, local_rank: int, found: str = "") -> None:
        super().quiesced(local_rank)


class KeepsParkedWorkers(NodeWorkers):
    """Keeps workers parked on a node that has no part in the cycle for which all were to be new processes."""

    def drop_parked(self) -> None:
        """Drop none."""


class CallsParkedWorkersAgain(KeepsParkedWorkers):
    """Goes on in the same processes also where the coordinator wants new ones."""

    def start(self, cycle: Cycle, *, fresh: bool = True) -> tuple[int, ...]:
        return super().start(cycle, fresh=False)


class ParksAtTheFence(Lifecycle):
    """Gives workers time to leave their function when their lease has ended."""

    def fence(self, now: float) -> None:
        self.stop(0.0, now)


class WaitsForParkedWorkers(Lifecycle):
    """Does not leave at the job's end while workers are parked."""

    def _leave(self, leave: actions.Leave) -> None:
        if not self._parked:
            super()._leave(leave)


class ForgetsReturns(Lifecycle):
    """Does not tell a new coordinator that the functions of this node's workers have returned."""

    @property
    def completed(self) -> int:
        return 0


class TakesEveryCycleForGood(FailureDecision):
    """Goes on in process after a cycle that has made no progress."""

    def settle(self, wall: float, now: float, may_go: MayGo, *, progressed: bool) -> Decision | None:
        return super().settle(wall, now, may_go, progressed=True)


class TellsOnlyTheCyclesNodes(FailureDecision):
    """Lets only the nodes of a cycle know that all of its workers are to be new processes."""

    def enter_fresh(self, cycle: Cycle) -> None:
        """Enter nothing."""


class RunsTheScriptAheadForNothing(AgentMachine):
    """Runs the script ahead on a node that is not chosen any more."""

    @property
    def spare(self) -> bool:
        return self.state is AgentState.STANDBY and self.watched is not None


class CountsNoRestartInProcess(Ledger):
    """Never finds the budget for restarts in process spent."""

    def count_in_process(self, rule: int, budget: InProcessBudget, at: float) -> int:
        return 0


class ReleasesTheFirst(CurrentCycle):
    """Lets the workers of a node go on as soon as their own function has returned."""

    def returned(self, node: int, functions: int) -> set[int]:
        super().returned(node, functions)
        self._released = functions
        return {node}

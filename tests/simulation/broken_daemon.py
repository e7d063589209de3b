"""Daemon machines with one broken rule each: rules of a daemon that leaves, and of its states."""

from __future__ import annotations

from ft_supervisor.core.daemon.child_watch import ChildWatch
from ft_supervisor.core.daemon.daemon import AGENT, DaemonMachine, State
from ft_supervisor.core.daemon.last_deed import LastDeed, Step
from ft_supervisor.core.daemon.leaving import Leaving
from ft_supervisor.core.protocol import actions


class CompletesWithSuccess(LastDeed):
    """Ends the job in Slurm with code 0 for every verdict."""

    def _complete(self) -> None:
        self._become(Step.COMPLETING)
        self._do(actions.CompleteJob(0, host_lost=self._lost))


class EndsEveryJob(LastDeed):
    """Ends the job although its batch script can end it."""

    def _is_ours(self) -> bool:
        return True


class WaitsForAnAnswer(LastDeed):
    """Waits without a bound for slurmctld's answer about the batch host."""

    def _ask(self, now: float) -> None:
        super()._ask(now)
        if self.step is Step.ASKING:
            self.due = None


class CompletesForEver(LastDeed):
    """Ignores the signal that comes when srun is ended."""

    def _look(self, now: float) -> None:
        if self.step is not Step.COMPLETING:
            super()._look(now)


class RequeuesAgain(LastDeed):
    """Asks for a requeue until Slurm grants it."""

    def _go_on(self, done: bool, now: float) -> None:
        if self.step is Step.REQUEUEING and not done:
            self._do(actions.RequeueJob())
        else:
            super()._go_on(done, now)


class LooksForNoFile(Leaving):
    """Waits for the result of a last look at the verdict's file that it has not asked for."""

    def begin(self, now: float) -> list[actions.DaemonAction]:
        todo: list[actions.DaemonAction] = [
            action for action in super().begin(now) if not isinstance(action, actions.LookForVerdict)
        ]
        self._look_until = None
        return todo


class ServesWhileItLeaves(DaemonMachine):
    """Starts another agent though the node leaves."""

    def _coordinator_exited(self, status: str, now: float) -> None:
        ending = self.state is State.ENDING
        super()._coordinator_exited(status, now)
        if ending:
            self._become(State.SERVING)


class SaysItBeforeTheSweep(DaemonMachine):
    """Says that an agent is gone when it is about to kill it, and so before its workers are."""

    def _tick(self, now: float) -> None:
        super()._tick(now)
        if actions.KillChild(AGENT) in self._actions:
            self._actions = [*self._agent_end.gone(self.memory), *self._actions]


class KeepsTheFormerDeadline(ChildWatch):
    """Keeps the deadline of a child that is gone, and so kills the next one."""

    def exit(self, now: float) -> None:
        kill_at = self._kill_at
        super().exit(now)
        self._kill_at = kill_at

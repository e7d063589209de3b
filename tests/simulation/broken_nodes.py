"""The core with one rule broken that a node keeps by itself."""

from __future__ import annotations

from dataclasses import replace

from ft_supervisor.core import actions, events, messages, orders
from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.daemon import DaemonMachine
from ft_supervisor.core.model import CONFIG_ERROR, Cycle, Failure, Memory
from ft_supervisor.core.roster import first_candidate


class AcceptsAnyRun(AgentMachine):
    def _be_told_to_run(self, run: messages.Run, now: float) -> None:
        self.memory = replace(self.memory, newest=None)
        super()._be_told_to_run(run, now)


class RunsWithoutALease(AgentMachine):
    def _be_told_to_run(self, run: messages.Run, now: float) -> None:
        self._lease.grant(now)
        super()._be_told_to_run(run, now)


class StartsBesideTheFormer(AgentMachine):
    """A failed worker's peers are left to themselves."""

    def _stop(self, grace: float, now: float, signal: str = "SIGTERM") -> None:
        if self._run is not None and self._end_as is None:
            self._gone(self._run.cycle, self._port, now)
        else:
            super()._stop(grace, now, signal)


class SaysStoppedTooEarly(AgentMachine):
    def _be_told_to_stop(self, stop: messages.Stop, now: float) -> None:
        self._send(messages.WorkersStopped, cycle=stop.cycle, port=self._port)
        super()._be_told_to_stop(stop, now)


class NeverStops(AgentMachine):
    def _stop(self, grace: float, now: float, signal: str = "SIGTERM") -> None:
        """Leave the workers alone."""


class FailsAndCallsItSuccess(AgentMachine):
    def _exited(self, cycle: Cycle, failures: tuple[Failure, ...], now: float) -> None:
        super()._exited(cycle, (), now)


class RemembersNothing(AgentMachine):
    """Its daemon hears of nothing that its successor would need, except promises."""

    def _remember(self, memory: Memory) -> None:
        self.memory = memory
        self._do(actions.Tell(orders.Remember(Memory(promise=memory.promise))))


class NeverLeaves(AgentMachine):
    def _leave(self, leave: actions.Leave) -> None:
        self._send(messages.Goodbye, verdict=self.memory.verdict)


class SaysGoodbyeTooEarly(AgentMachine):
    """Nobody waits for its workers, though they go on."""

    def _terminate(self, reason: str, now: float) -> None:
        self._send(messages.Goodbye, verdict=None)


class NeverCallsAnybodyElse(AgentMachine):
    """Stays with the coordinator that it knew first."""

    def handle(self, event: events.AgentEvent, now: float) -> list[actions.AgentAction]:
        return [
            actions.Dial((first_candidate(self.job),)) if isinstance(action, actions.Dial) else action
            for action in super().handle(event, now)
        ]


class LeavesByTheBarrier(AgentMachine):
    """Its key alone sends a node home."""

    def _tick(self, now: float) -> None:
        super()._tick(now)
        if self._end_as is None and self._run is None and self._giving_up.hinted:
            self._end(actions.Leave(0, None, "the exit barrier is passed"), 0.0, now)


class BelievesAnyStore(AgentMachine):
    """One with another configuration ends the node, whoever has made it."""

    def _hear_of_another_policy(self, event: events.PolicyDiffers, now: float) -> None:
        self._end(actions.Leave(CONFIG_ERROR, None, event.reason), 0.0, now)


def believes(*_: object) -> str:
    """Instead of a look whether a message can be true."""
    return ""


class HasNoGuard(AgentMachine):
    """Nothing beside the workers looks at their lease."""

    @property
    def guard_at(self) -> float | None:
        return None


class DoesNotGuardTheFence(DaemonMachine):
    """Leaves it to an agent that may stand still."""

    def handle(self, event: events.DaemonEvent, now: float) -> list[actions.DaemonAction]:
        match event:
            case events.Ordered(_, orders.Alive() as alive):
                event = replace(event, order=replace(alive, fence_in=None))
        return super().handle(event, now)

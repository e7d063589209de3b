"""The core with one rule broken that a node keeps by itself."""

from __future__ import annotations

from dataclasses import replace

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.agent.follower import Follower
from ft_supervisor.core.agent.lifecycle import Lifecycle
from ft_supervisor.core.agent.states import Closing, Standby, Stopping, Succeeded
from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.protocol import actions, events, messages, orders
from ft_supervisor.core.protocol.model import CONFIG_ERROR, Cycle, Failure, Memory
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.quorum.roster import first_candidate


class AcceptsAnyRun(AgentMachine):
    def _run(self, run: messages.Run, now: float) -> None:
        self._follower.memory = replace(self.memory, newest=None)
        super()._run(run, now)


class RunsWithoutALease(AgentMachine):
    def _run(self, run: messages.Run, now: float) -> None:
        self._follower.lease.grant(now)
        super()._run(run, now)


class StartsBesideTheFormer(Lifecycle):
    """Leaves a failed worker's peers running."""

    def stop(self, grace: float, now: float, signal: str = "SIGTERM") -> None:
        if self.running is not None and not isinstance(self.state, Closing):
            self.send_stopped(self.running)
            self.state = Standby()
        else:
            super().stop(grace, now, signal)


class SaysStoppedTooEarly(AgentMachine):
    def _stop_cycle(self, stop: messages.Stop, now: float) -> None:
        self._life.send_stopped(stop.cycle)
        super()._stop_cycle(stop, now)


class NeverStops(Lifecycle):
    """Leaves the workers alone."""

    def stop(self, grace: float, now: float, signal: str = "SIGTERM") -> None:
        do, self._do = self._do, lambda action: None if isinstance(action, actions.StopWorkers) else do(action)
        super().stop(1e6, now, signal)
        self._do = do


class TakesAStopForASuccess(Lifecycle):
    """Takes workers that are gone for a success."""

    def gone(self, cycle: Cycle) -> None:
        if isinstance(self.state, Stopping):
            self._become(Succeeded(cycle))
        else:
            super().gone(cycle)


class ForgetsItsDeadline(Lifecycle):
    """Waits for ever for its workers to be gone."""

    def stop(self, grace: float, now: float, signal: str = "SIGTERM") -> None:
        super().stop(grace, now, signal)
        if isinstance(self.state, Stopping):
            self.state = Stopping(self.state.run)


class FailsAndCallsItSuccess(Lifecycle):
    def exited(self, cycle: Cycle, failures: tuple[Failure, ...], now: float) -> None:
        super().exited(cycle, (), now)


class RemembersNothing(Follower):
    """Sends its daemon nothing that its successor needs, except promises."""

    def remember(self, memory: Memory) -> None:
        self.memory = memory
        self._do(actions.Tell(orders.Remember(Memory(promise=memory.promise))))


class NeverLeaves(Lifecycle):
    def _leave(self, leave: actions.Leave) -> None:
        self.state = Closing(leave, None)
        self._follower.send(messages.Goodbye, verdict=self._follower.memory.verdict)


class SaysGoodbyeTooEarly(AgentMachine):
    """Sends its Goodbye without waiting for its workers, which go on."""

    def _terminate(self, reason: str, now: float) -> None:
        self._follower.send(messages.Goodbye, verdict=None)


class NeverCallsAnybodyElse(AgentMachine):
    """Stays with the coordinator that it met first."""

    def handle(self, event: events.AgentEvent, now: float) -> list[actions.AgentAction]:
        return [
            actions.Dial((first_candidate(self.job),)) if isinstance(action, actions.Dial) else action
            for action in super().handle(event, now)
        ]


class LeavesByTheBarrier(AgentMachine):
    """Ends a node by the exit barrier's key alone."""

    def _tick(self, now: float) -> None:
        super()._tick(now)
        if self.state is not AgentState.CLOSING and self.running is None and self._giving_up.hinted:
            self._life.end(actions.Leave(0, None, "the exit barrier is passed"), 0.0, now)


class BelievesAnyStore(AgentMachine):
    """Ends the node for any store with another configuration."""

    def _policy_differs(self, event: events.PolicyDiffers, now: float) -> None:
        self._life.end(actions.Leave(CONFIG_ERROR, None, event.reason), 0.0, now)


def believes(*_: object) -> str:
    """Accepts every message, also one that cannot be true."""
    return ""


def echoes_always(round_: int, *, abandoned: bool) -> int:
    """Replaces lease.echo: writes back the round that an abandoned connection has read."""
    return round_


class HasNoGuard(AgentMachine):
    """Removes the guard: no process beside the workers watches their lease."""

    @property
    def guard_at(self) -> float | None:
        return None


class DoesNotGuardTheFence(DaemonMachine):
    """Leaves the fence to an agent that may stand still."""

    def handle(self, event: events.DaemonEvent, now: float) -> list[actions.DaemonAction]:
        match event:
            case events.Ordered(_, orders.Alive() as alive):
                event = replace(event, order=replace(alive, fence_in=None))
        return super().handle(event, now)

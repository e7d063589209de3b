"""Agents and daemons with one broken rule each: rules that a node keeps without its coordinator."""

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
    """Accepts a Run of a cycle that is not newer than its newest one."""

    def _run(self, run: messages.Run, now: float) -> None:
        self._follower.memory = replace(self.memory, newest=None)
        super()._run(run, now)


class RunsWithoutALease(AgentMachine):
    """Starts workers although it has no lease."""

    def _run(self, run: messages.Run, now: float) -> None:
        self._follower.lease.grant(now)
        super()._run(run, now)


class StartsBesideTheFormer(Lifecycle):
    """Reports the workers as stopped and leaves them running."""

    def stop(self, grace: float, now: float, signal: str = "SIGTERM", *, park: bool = True) -> None:
        if self.running is not None and not isinstance(self.state, Closing):
            self.send_stopped(self.running)
            self.state = Standby()
        else:
            super().stop(grace, now, signal, park=park)


class ReportsStoppedTooEarly(AgentMachine):
    """Sends WorkersStopped before the workers are gone."""

    def _stop_cycle(self, stop: messages.Stop, now: float) -> None:
        self._life.send_stopped(stop.cycle)
        super()._stop_cycle(stop, now)


class NeverStops(Lifecycle):
    """Sends its workers no signal, and waits for their end."""

    def stop(self, grace: float, now: float, signal: str = "SIGTERM", *, park: bool = True) -> None:
        do, self._do = self._do, lambda action: None if isinstance(action, actions.StopWorkers) else do(action)
        super().stop(1e6, now, signal, park=park)
        self._do = do


class TakesAStopForASuccess(Lifecycle):
    """Treats workers that were stopped as successful."""

    def gone(self, cycle: Cycle, parked: int) -> None:
        if isinstance(self.state, Stopping):
            self._become(Succeeded(cycle))
        else:
            super().gone(cycle, parked)


class ForgetsItsDeadline(Lifecycle):
    """Waits for ever for its workers to be gone."""

    def stop(self, grace: float, now: float, signal: str = "SIGTERM", *, park: bool = True) -> None:
        super().stop(grace, now, signal, park=park)
        if isinstance(self.state, Stopping):
            self.state = Stopping(self.state.run)


class FailsAndCallsItSuccess(Lifecycle):
    """Reports failed workers as successful."""

    def exited(self, cycle: Cycle, failures: tuple[Failure, ...], now: float) -> None:
        super().exited(cycle, (), now)


class RemembersNothing(Follower):
    """Sends its daemon nothing that the next agent needs, except promises."""

    def remember(self, memory: Memory) -> None:
        self.memory = memory
        self._do(actions.Tell(orders.Remember(Memory(promise=memory.promise))))


class NeverLeaves(Lifecycle):
    """Sends Goodbye, and then waits for ever."""

    def _leave(self, leave: actions.Leave) -> None:
        self.state = Closing(leave, None)
        self._follower.send(messages.Goodbye, verdict=self._follower.memory.verdict)


class SendsGoodbyeTooEarly(AgentMachine):
    """Sends Goodbye while its workers go on."""

    def _terminate(self, reason: str, now: float) -> None:
        self._follower.send(messages.Goodbye, verdict=None)


class DialsOnlyTheFirstCandidate(AgentMachine):
    """Dials only the job's first candidate."""

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
    """Ends the node when any store has another configuration."""

    def _policy_differs(self, event: events.PolicyDiffers, now: float) -> None:
        self._life.end(actions.Leave(CONFIG_ERROR, None, event.reason), 0.0, now)


def accept_all(*_: object) -> str:
    """Return no objection to any message, even to one that cannot be true."""
    return ""


def echo_always(round_: int, *, abandoned: bool) -> int:
    """Return the round to write back, even on an abandoned connection. Replaces lease.echo."""
    return round_


class HasNoGuard(AgentMachine):
    """Has no guard: no process beside the workers watches their lease."""

    @property
    def guard_at(self) -> float | None:
        return None


class DoesNotGuardTheFence(DaemonMachine):
    """Ignores the fence's time, and so leaves the fence to an agent that may stand still."""

    def handle(self, event: events.DaemonEvent, now: float) -> list[actions.DaemonAction]:
        match event:
            case events.Ordered(_, orders.Alive() as alive):
                event = replace(event, order=replace(alive, fence_in=None))
        return super().handle(event, now)

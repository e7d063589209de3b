"""The agent's machine: takes every event of one agent, and decides what its node does.

follower.py has the node's promise and whose mail counts, lifecycle.py its workers from a Run to the moment when none is
left, giving_up.py when it ends without a verdict. Here they come together.

The fence (no lease for `fence`) stops the workers and changes nothing else: the node is a standby again once it finds a
coordinator. The exit barrier's key ends no node: it is a hint, upon which the coordinator is asked, and without a
coordinator the daemon looks for the verdict's file.
"""

from __future__ import annotations

from dataclasses import replace

from ft_supervisor.core.agent.follower import Follower, Orders
from ft_supervisor.core.agent.giving_up import GiveUp
from ft_supervisor.core.agent.lifecycle import Lifecycle
from ft_supervisor.core.agent.states import invariants
from ft_supervisor.core.protocol import agent_facts as facts
from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.actions import AgentAction, Announce, Leave, Tell
from ft_supervisor.core.protocol.events import (
    AgentEvent,
    BarrierPassed,
    Beat,
    CannotStart,
    CheckAnswered,
    CloseHeld,
    Connected,
    Disconnected,
    EvidenceTaken,
    FirstLine,
    Looked,
    Mailed,
    PolicyDiffers,
    Terminated,
    Tick,
    TurnedUnhealthy,
    WorkerProgressed,
    WorkersExited,
    WorkersGone,
    WorkersReturned,
    WorkersSeen,
    WorkersStarted,
)
from ft_supervisor.core.protocol.model import (
    CONFIG_ERROR,
    KILL_BOUND,
    NO_PROMISE,
    Cycle,
    Job,
    Memory,
    Node,
    Outcome,
    Verdict,
)
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.transitions import InvalidState, check_invariants

GUARD_MARGIN = KILL_BOUND / 2
"""Seconds that the agent gets after the fence to end its workers itself; then the guard beside them does it."""


class AgentMachine:
    """Pure: `handle` takes an event and returns actions. All times in seconds."""

    def __init__(
        self,
        job: Job,
        node: Node,
        incarnation: int,
        memory: Memory,
        now: float,
        epoch: float = 0.0,
        waited: float = 0.0,
    ) -> None:
        """`epoch` and `waited`: see orders.Begin."""
        self.job = job
        self.node = node
        self.incarnation = incarnation
        self._register_due = False
        """Whether the next Tick sends a Register; not at once, as its answer may be the same Run again."""
        self._actions: list[AgentAction] = []
        self._follower = Follower(job, node, incarnation, memory, self._do)
        self._giving_up = GiveUp(job, memory.newest, now, waited)
        self._life = Lifecycle(job, node, self._follower, epoch, self._do)

    @property
    def state(self) -> AgentState:
        """The name of the present state."""
        return self._life.state.name

    @property
    def memory(self) -> Memory:
        """What the node's next agent has to know."""
        return self._follower.memory

    @property
    def running(self) -> Cycle | None:
        """The cycle whose workers may live on this node."""
        return self._life.running

    @property
    def watched(self) -> Cycle | None:
        """The cycle whose exit barrier is to be watched."""
        return self._giving_up.watched

    @property
    def spare(self) -> bool:
        """Whether this node has no part in the cycle that runs, and may be chosen for a later one."""
        memory, watched = self.memory, self.watched
        if self.state is not AgentState.STANDBY or watched is None or (memory.newest and memory.newest >= watched):
            return False
        return memory.unhealthy is None and self.node.infra_rank not in parse_ranks(memory.ledger.excluded)

    @property
    def fence_at(self) -> float | None:
        """Until when workers may run, as far as the lease goes. None where nothing runs, and after a verdict: no other
        node will run anything any more."""
        since = self._follower.lease.since
        if self.running is None or since is None or self.memory.verdict is not None:
            return None
        return since + self.job.timeouts.fence

    @property
    def guard_at(self) -> float | None:
        """When the guard beside the workers ends them, which needs neither agent nor daemon."""
        return None if self.fence_at is None else self.fence_at + GUARD_MARGIN

    def start(self, now: float) -> list[AgentAction]:
        """Return the first actions."""
        self._actions.clear()
        self._follower.start(now)
        return [*self._actions]

    def handle(self, event: AgentEvent, now: float) -> list[AgentAction]:
        """Take one event, and return the actions in order. Raises InvalidState, which is a bug."""
        self._actions.clear()
        try:
            self._dispatch(event, now)
        except InvalidState as error:
            raise InvalidState(f"{error} (by {event!s:.200})") from error
        return [*self._actions]

    def _dispatch(self, event: AgentEvent, now: float) -> None:
        gone = isinstance(event, WorkersGone) and event.cycle == self.running
        if self._fence_is_over(now) and not gone and not isinstance(event, CloseHeld):
            self._life.fence(now)  # first: after a stand-still the event may be of a world that has moved on
        match event:
            case Connected():
                self._connect(event, now)
            case Disconnected(reason):
                self._do(Announce(facts.ConnectionLost(reason)))
                self._follower.lose()
                self._look_if_over(now)
            case Mailed(message):
                self._mail(message, now)
            case Looked():
                self._follower.look(event, now)
            case BarrierPassed(cycle):
                self._giving_up.passed(cycle, now)
                self._look_if_over(now)
            case WorkersStarted():
                self._do(Announce(facts.WorkersMade(event.cycle, event.in_process, event.warm, event.cold)))
            case WorkerProgressed(cycle):
                self._life.progressed(cycle)
            case FirstLine(cycle):
                self._life.first_line(cycle, now)
            case WorkersReturned(cycle, functions):
                self._life.returned(cycle, functions)
            case WorkersExited(cycle, failures):
                self._life.exited(cycle, failures, now)
            case CannotStart(cycle, reason):
                self._life.cannot_start(cycle, reason, now)
            case WorkersGone():
                self._gone(event, now)
            case Beat():
                self._life.beat(event, now)
            case WorkersSeen():
                self._life.seen(event, now)
            case EvidenceTaken():
                self._life.evidence_taken(event, now)
            case CheckAnswered(cycle, problem):
                self._life.checked(cycle, problem, now)
            case TurnedUnhealthy(problem):
                self._life.turn_unhealthy(problem)
            case PolicyDiffers():
                self._policy_differs(event, now)
            case Terminated(reason):
                self._terminate(reason, now)
            case CloseHeld(verdict):
                self._close(verdict, now)
            case Tick():
                self._tick(now)

    def validate(self) -> None:
        """Raise InvalidState if an invariant does not hold. The simulator calls it after each event."""
        leased = self._follower.lease.since is not None
        check_invariants(self.state, invariants(self._life.state, self.memory, leased))
        self._follower.search.validate()

    # -- the coordinator

    def _connect(self, event: Connected, now: float) -> None:
        self._giving_up.connected()
        self._follower.connect(event, now)
        self._life.repeat_success()
        self._register(now)

    def _register(self, now: float) -> None:
        life = self._life
        self._follower.register(self.running, self._giving_up.signal, life.completed, life.hangs, life.sign(now))

    def _mail(self, message: messages.ToAgent, now: float) -> None:
        fresh = self.memory.ledger.fresh
        received = self._follower.receive(message, now)
        if self.memory.ledger.fresh != fresh:
            self._life.drop_parked()
        match received:
            case messages.Close(verdict=verdict):
                self._close(verdict, now)
            case messages.Prepare():
                self._register(now)
            case None:
                pass
            case order:
                self._obey(order, now)

    def _obey(self, order: Orders, now: float) -> None:
        if self.state is AgentState.CLOSING:
            return
        match order:
            case messages.Run():
                self._run(order, now)
            case messages.Stop():
                self._stop_cycle(order, now)
            case messages.Standby(cycle=cycle):
                self._stand_by(cycle, now)
            case messages.TakeEvidence():
                self._life.take_evidence(order, now)
            case messages.Complete(cycle=cycle, functions=functions):
                self._life.release(cycle, functions)

    def _run(self, run: messages.Run, now: float) -> None:
        if self.memory.newest is not None and run.cycle <= self.memory.newest:
            return
        since = self._follower.lease.since
        if since is None or now - since >= self.job.timeouts.fence:
            self._do(Announce(facts.RunRefused(run.cycle)))
            self._follower.again()
        elif self.running is not None:  # the coordinator has to wait for these workers, or does not know of them
            self._follower.drop_beside(run, self.running, now)
            self._register_due = True
        else:
            self._follower.begin(run.cycle, run.group)
            self._giving_up.watch(run.cycle)
            self._life.start(run, now)

    def _stop_cycle(self, stop: messages.Stop, now: float) -> None:
        cycle = stop.cycle
        if self.memory.newest is not None and cycle < self.memory.newest:
            return
        if cycle != self.memory.newest:  # its Run was lost on the way: if it comes still, it is old
            self._follower.begin(cycle, stop.group)
        if self.running is not None:
            self._follower.send(messages.Stopping, cycle=cycle)
            self._life.stop(stop.grace, now)
        else:
            self._life.send_stopped(cycle)

    def _stand_by(self, cycle: Cycle | None, now: float) -> None:
        if cycle is not None and self.memory.newest is not None and cycle < self.memory.newest:
            return
        self._giving_up.watch(cycle)
        self._life.stand_by(now)

    def _gone(self, gone: WorkersGone, now: float) -> None:
        if self.running == gone.cycle:
            self._follower.port = gone.port
            if self.state is not AgentState.CLOSING:
                self._tell_alive(now, gone=True)  # or the daemon would take a fence that was kept for a missed one
            self._life.gone(gone.cycle, len(gone.parked))

    # -- the end

    def _close(self, verdict: Verdict, now: float) -> None:
        if self.memory.verdict is None:
            self._follower.remember(replace(self.memory, verdict=verdict))
            interrupted = verdict.outcome is Outcome.INTERRUPTED
            signal = self.job.settings.interruption.signal if interrupted else "SIGTERM"
            self._life.end(Leave(verdict.exit_code, verdict, verdict.reason), self.job.last_grace(verdict), now, signal)

    def _terminate(self, reason: str, now: float) -> None:
        if self._giving_up.signalled(reason, now):
            self._life.signalled = not self.job.signal_workers
            self._do(Announce(facts.TerminationPassedOn(reason)))
            self._follower.send(messages.ToldToEnd, reason=reason)

    def _policy_differs(self, event: PolicyDiffers, now: float) -> None:
        """A node that has promised a term has its coordinator's configuration: then the store is a stranger's."""
        self._do(Announce(facts.ConfigDiffers(event.reason)))
        if self.memory.promise != NO_PROMISE:
            return
        if event.certain:
            self._life.end(Leave(CONFIG_ERROR, None, event.reason), 0.0, now)
        else:
            self._giving_up.differs(event.reason, now)

    def _fence_is_over(self, now: float) -> bool:
        return self.fence_at is not None and now >= self.fence_at

    # -- time

    def _tick(self, now: float) -> None:
        self._tell_alive(now)
        self._life.tick(now)
        self._follower.tick(now)
        if self._register_due:
            self._register_due = False
            self._register(now)
        if self.state is not AgentState.CLOSING:
            self._give_up_if_due(now)
            if self.running is None and self._follower.led and self._giving_up.asks(now):
                self._register(now)  # the answer is what its coordinator wants of this node
        self._life.abandon_if_due(now)

    def _give_up_if_due(self, now: float) -> None:
        due = self._giving_up.due(self.memory.newest, self._follower.lease.since, now, led=self._follower.led)
        if due is not None:
            leave, grace = due
            self._life.end(leave, grace, now)

    def _look_if_over(self, now: float) -> None:
        """Have the daemon look for the verdict now, and not at its next tick, if there is no coordinator."""
        if self._giving_up.hinted:
            self._tell_alive(now)

    def _tell_alive(self, now: float, *, gone: bool = False) -> None:
        """`gone`: the workers of the present state are."""
        run = None if gone else self._life.state.run
        known = self._follower.led or run is not None or self.state is AgentState.CLOSING
        alive = orders.Alive(
            state=self.state if known else AgentState.JOINING,
            cycle=str(self.memory.newest) if self.memory.newest else "",
            group_rank=run.group_rank if run else None,
            fence_in=None if gone or self.fence_at is None else self.fence_at - now,
            look=self._giving_up.hinted,
        )
        self._do(Tell(alive))

    def _do(self, action: AgentAction) -> None:
        self._actions.append(action)

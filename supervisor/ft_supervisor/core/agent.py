"""The agent: what one node runs, by the coordinator's mail, its own workers' exits, and its fence.

Whom it listens to is the Caller's business (core.caller); here is what it does about it.

    state      workers   leaves it on
    joining    none      Standby: standby; Run: checking
    standby    none      Run: checking
    checking   none      Checked: active, or unhealthy; without checks for a cycle: active at once
    active     running   a failure, CannotStart, Stop, Standby, a newer Run: stopping; all exited with 0: succeeded
    stopping   ending    WorkersGone: the newer Run's checking, else standby
    succeeded  none      Run: checking
    closing    ending    WorkersGone, or none there: Goodbye and out

The fence (no lease for `fence`) ends the workers and leaves the rest as it is: the node is a standby again once it
finds a coordinator. Whatever ends the node (verdict, no coordinator for `takeover`, a signal without a coordinator to
tell) goes through `_end`. The exit barrier's key ends none: it is a hint, upon which the coordinator is asked, and
without one the daemon looks for the verdict's file.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from ft_supervisor.core import messages, orders
from ft_supervisor.core.actions import AgentAction, EnterBarrier, Leave, Send, Start, StopWorkers, TakeStacks, Tell, log
from ft_supervisor.core.alone import Alone
from ft_supervisor.core.caller import Caller
from ft_supervisor.core.events import (
    AgentEvent,
    BarrierPassed,
    Beat,
    CannotStart,
    CheckAnswered,
    Connected,
    Disconnected,
    Ended,
    Looked,
    Mailed,
    PolicyDiffers,
    StacksTaken,
    Terminated,
    Tick,
    TurnedUnhealthy,
    WorkersExited,
    WorkersGone,
)
from ft_supervisor.core.failures import fit_to_tell
from ft_supervisor.core.hangs import Hangs
from ft_supervisor.core.health import WORKERS
from ft_supervisor.core.lease import Lease
from ft_supervisor.core.ledger import newer
from ft_supervisor.core.model import (
    CONFIG_ERROR,
    INTERRUPTED,
    KILL_BOUND,
    NO_PROMISE,
    Accepted,
    Cycle,
    Failure,
    Job,
    Memory,
    Node,
    Outcome,
    Problem,
    Roster,
    Verdict,
)
from ft_supervisor.core.plausible import to_node
from ft_supervisor.core.policy import ignored
from ft_supervisor.core.refusals import Refusals
from ft_supervisor.core.roster import first_candidate, first_term
from ft_supervisor.core.settings import When
from ft_supervisor.core.words import one_line

GUARD_MARGIN = KILL_BOUND / 2
"""Seconds that the agent gets after the fence to end its workers itself; then the guard beside them does it."""

STOP_MARGIN = 5.0
"""Seconds beyond grace and kill until an agent that can't see its workers gone leaves the rest to its daemon."""


class State(StrEnum):
    """What the node does."""

    JOINING = "joining"
    STANDBY = "standby"
    CHECKING = "checking"
    ACTIVE = "active"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    CLOSING = "closing"


class AgentMachine:
    """Pure: `handle` takes what happened and returns what to do. All times in seconds."""

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
        """`waited`: see orders.Begin."""
        self.job = job
        self.node = node
        self.incarnation = incarnation
        self.memory = memory
        self.state = State.JOINING
        self._alone = Alone(job, memory.newest, now, waited)
        self._caller = Caller(job, node)
        self._lease = Lease()
        self._hangs = Hangs(job, node, epoch)
        self._refusals = Refusals()
        self._said = now
        self._serial = 0
        self._port = 0
        self._run: messages.Run | None = None
        self._next: messages.Run | None = None
        self._gone_by: float | None = None
        self._fenced = False
        self._end_as: Leave | None = None
        self._actions: list[AgentAction] = []

    def start(self, now: float) -> list[AgentAction]:
        """The first actions."""
        return [self._caller.dial(self.memory, now)]

    @property
    def running(self) -> Cycle | None:
        """The cycle whose workers may live on this node."""
        return self._run.cycle if self._run else None

    @property
    def watched(self) -> Cycle | None:
        """The cycle whose exit barrier is to be looked at."""
        return self._alone.watched

    @property
    def fence_at(self) -> float | None:
        """Until when workers may run, as far as the lease goes; None where nothing runs or is to be fenced. With a
        verdict there is nothing to fence: no other node will run anything any more."""
        since = self._lease.since
        if self._run is None or since is None or self.memory.verdict is not None:
            return None
        return since + self.job.timeouts.fence

    @property
    def guard_at(self) -> float | None:
        """When the guard beside the workers ends them, which needs neither agent nor daemon."""
        return None if self.fence_at is None else self.fence_at + GUARD_MARGIN

    def handle(self, event: AgentEvent, now: float) -> list[AgentAction]:
        """One event in, actions out, in order."""
        self._actions = []
        if self._fence_is_over(now) and not isinstance(event, Ended):
            self._fence(now)  # first of all: a node that stood still hears of a world that has moved on
        match event:
            case Connected():
                self._connect(event, now)
            case Disconnected(reason):
                self._do(log("disconnected", "warning", reason=reason))
                self._do(self._caller.lose(self.memory))
                self._look_if_over(now)
            case Mailed(message):
                self._mail(message, now)
            case Looked(asked, round_, term, lease):
                self._caller.look(round_, term, lease, self.memory, now)
                # Until it has acted on our Register, it may take us for lost while we read its leases.
                ours = self._caller.charged and term == self.memory.promise
                self._lease.look(asked, round_, lease if ours else 0)
            case BarrierPassed(cycle):
                self._alone.passed(cycle, now)
                self._look_if_over(now)
            case WorkersExited(cycle, failures):
                self._exited(cycle, failures, now)
            case CannotStart(cycle, reason):
                self._cannot_start(cycle, reason, now)
            case WorkersGone(cycle, port):
                self._gone(cycle, port, now)
            case Beat():
                self._hangs.beat(event, now)
            case StacksTaken():
                self._blame_hung(event, now)
            case CheckAnswered(cycle, problem):
                self._checked(cycle, problem, now)
            case TurnedUnhealthy(problem):
                self._turn_unhealthy(problem)
            case PolicyDiffers():
                self._hear_of_another_policy(event, now)
            case Terminated(reason):
                self._terminate(reason, now)
            case Ended(verdict):
                self._close(verdict, now)
            case Tick():
                self._tick(now)
        return self._actions

    # -- the coordinator

    def _connect(self, event: Connected, now: float) -> None:
        self._port, self._said = event.port, now
        self._caller.connect(event, now)
        self._alone.differs = None
        self._lease.connect(event.round, event.asked)
        self._do(log("connected", candidate=self.job.nodes[event.candidate]))
        if self.memory.succeeded is not None and self._run is None and self.state is State.JOINING:
            self._become(State.SUCCEEDED, cycle=self.memory.succeeded)
        if self.memory.promise == NO_PROMISE and event.candidate == first_candidate(self.job):
            self._remember(replace(self.memory, promise=first_term(self.job)))  # a fresh job needs no vote
        self._register()

    def _register(self) -> None:
        """Of failures the first alone, which decides: there has to be room for the lists of 10,000 nodes."""
        self._serial += 1
        register = messages.Register(
            node=self.node,
            incarnation=self.incarnation,
            connection=self._caller.connection,
            round=self._caller.round,
            port=self._port,
            running=self.running,
            memory=replace(self.memory, failures=self.memory.failures[:1]),
            serial=self._serial,
            told=self._alone.told,
        )
        self._do(Send(register))

    def _mail(self, message: messages.ToAgent, now: float) -> None:
        if wrong := to_node(message, self.job, self.node, self.memory):
            self._drop(message, wrong, now)
            return
        if isinstance(message, messages.Close):  # the job's verdict is that in every term
            self._close(message.verdict, now)
            return
        prepare = isinstance(message, messages.Prepare)
        if prepare and message.term > self.memory.promise:
            self._remember(replace(self.memory, promise=message.term))
            self._next = None
            self._do(log("promised", term=message.term))
        elif message.term != self.memory.promise:
            self._drop(message, None, now)
            return
        if not prepare:
            self._caller.charge()
        match message:
            case messages.Prepare():
                self._caller.prepare(now)
                self._register()
            case messages.Members(roster=roster):
                self._keep(roster)
            case messages.Propose(verdict=verdict, deputy=deputy):
                self._remember(replace(self.memory, accepted=Accepted(message.term, verdict, deputy)))
                self._send(messages.VerdictKept)
            case _:
                self._be_led(message, now)

    def _drop(self, message: messages.ToAgent, wrong: str | None, now: float) -> None:
        """`wrong`: what cannot be true of it; None if it is of another term."""
        name = type(message).__name__
        if (more := self._refusals.due(f"{name} {wrong}", now)) is not None:
            self._do(log("mail_dropped", "warning", message=name, term=message.term, reason=wrong, more=more or None))

    def _be_led(self, message: messages.Standby | messages.Run | messages.Continue | messages.Stop, now: float) -> None:
        """By a coordinator that is in charge."""
        if not isinstance(message, messages.Stop):
            if message.age is not None:
                self._lease.grant(self._said - message.age)
            if newer(self.memory.ledger, message.ledger) != self.memory.ledger:
                self._remember(replace(self.memory, ledger=message.ledger))
        if self.state is State.CLOSING:
            return
        match message:
            case messages.Run():
                self._be_told_to_run(message, now)
            case messages.Stop():
                self._be_told_to_stop(message, now)
            case messages.Standby(cycle=cycle):
                self._stand_by(cycle, now)

    def _keep(self, roster: Roster) -> None:
        if self.memory.roster is None or roster.stamp > self.memory.roster.stamp:
            self._remember(replace(self.memory, roster=roster))
        if roster == self.memory.roster:
            self._send(messages.RosterKept, stamp=roster.stamp)

    def _be_told_to_run(self, run: messages.Run, now: float) -> None:
        if self.memory.newest is not None and run.cycle <= self.memory.newest:
            return
        if self._lease.since is None or now - self._lease.since >= self.job.timeouts.fence:
            self._do(log("mail_dropped", "warning", message="Run", cycle=run.cycle, reason="no lease to run it"))
            self._do(self._caller.again(self.memory))
            return
        self._remember(self._memory_of(run.cycle, run.group))
        self._alone.watch(run.cycle)
        if self._run is None:
            self._start(run, now)
        else:
            self._next = run
            self._stop(self.job.timeouts.restart_grace, now)

    def _be_told_to_stop(self, stop: messages.Stop, now: float) -> None:
        cycle = stop.cycle
        if self.memory.newest is not None and cycle < self.memory.newest:
            return
        if cycle != self.memory.newest:  # its Run was lost on the way: should it come still, it is old
            self._remember(self._memory_of(cycle, stop.group))
        if self._run is not None:
            self._send(messages.Stopping, cycle=cycle)
            self._stop(stop.grace, now)
        else:
            self._send(messages.WorkersStopped, cycle=cycle, port=self._port)

    def _stand_by(self, cycle: Cycle | None, now: float) -> None:
        if cycle is not None and self.memory.newest is not None and cycle < self.memory.newest:
            return
        self._alone.watch(cycle)
        self._next = None
        if self._run is not None:
            self._stop(self.job.timeouts.restart_grace, now)
        else:
            self._become(State.STANDBY)

    def _memory_of(self, cycle: Cycle, group: str) -> Memory:
        return replace(self.memory, newest=cycle, group=group, succeeded=None, failures=())

    # -- the workers

    def _start(self, run: messages.Run, now: float) -> None:
        """First see whether the node is well enough, where the policy wants that."""
        self._run, self._next = run, None
        health = self.job.settings.health
        if self.memory.unhealthy is not None:  # the coordinator did not know when it sent this Run
            self._run_nothing(self.memory.unhealthy)
            return
        if health.gpu is None and not any(When.BEFORE_CYCLE in check.when for check in health.checks):
            self._be_active(run, now)
        else:
            self._become(State.CHECKING, cycle=run.cycle)
            self._do(Tell(orders.Check(str(run.cycle))))

    def _checked(self, cycle: str, problem: Problem | None, now: float) -> None:
        asked = self.state is State.CHECKING and self._run is not None and str(self._run.cycle) == cycle
        if problem is not None and asked:
            self._run_nothing(problem)
        elif problem is not None:
            self._turn_unhealthy(problem)
        elif asked and self._run is not None:
            self._be_active(self._run, now)

    def _run_nothing(self, problem: Problem) -> None:
        """The node is told to run a cycle, has not begun, and is not fit for it."""
        assert self._run is not None
        run, self._run = self._run, None
        self._turn_unhealthy(problem)
        self._become(State.STANDBY)
        self._send(messages.WorkersStopped, cycle=run.cycle, port=self._port)

    def _turn_unhealthy(self, problem: Problem) -> None:
        """The first problem counts, for good."""
        if self.memory.unhealthy is None:
            self._remember(replace(self.memory, unhealthy=problem))
            self._do(log("unhealthy", "warning", reason=problem.reason))
        self._send(messages.Unhealthy, problem=self.memory.unhealthy)

    def _be_active(self, run: messages.Run, now: float) -> None:
        self._become(State.ACTIVE, cycle=run.cycle, group_rank=run.group_rank, group_world_size=run.group_world_size)
        self._hangs.start(now)
        self._do(Start(run))

    def _stop(self, grace: float, now: float, signal: str = "SIGTERM") -> None:
        assert self._run is not None
        gone_by = now + grace + KILL_BOUND + STOP_MARGIN
        if self._gone_by is not None and gone_by >= self._gone_by:
            return  # they are being stopped already, and sooner
        self._gone_by = gone_by
        if self.state is not State.CLOSING:
            self._become(State.STOPPING, cycle=self._run.cycle)
        signalled = self._alone.is_told and not self.job.signal_workers
        self._do(StopWorkers(self._run.cycle, grace, "" if signalled else signal))

    def _exited(self, cycle: Cycle, failures: tuple[Failure, ...], now: float) -> None:
        if self._run is None or cycle != self._run.cycle or self.state is not State.ACTIVE:
            return
        if failures:
            self._fail([failure for failure in failures if not self._ignores(failure)], now)
            return
        world_size = self._run.group_world_size
        self._run = None
        self._remember(replace(self.memory, succeeded=cycle))
        self._become(State.SUCCEEDED, cycle=cycle)
        self._send(messages.WorkersSucceeded, cycle=cycle)
        self._do(EnterBarrier(cycle, world_size))

    def _cannot_start(self, cycle: Cycle, reason: str, now: float) -> None:
        """Not the workers' fault but the node's: another one has to take its place."""
        self._turn_unhealthy(Problem(WORKERS, one_line(f"cannot start workers: {reason}")))
        if self._run is not None and self._run.cycle == cycle:
            self._stop(0.0, now)  # nothing that was started has done any work

    def _ignores(self, failure: Failure) -> bool:
        """A rule says so: the other workers go on."""
        if not ignored(self.job.settings.rules, failure, self.node.name):
            return False
        self._do(log("failure_ignored", "warning", failure=str(failure)))
        return True

    def _fail(self, failures: list[Failure], now: float) -> None:
        if not failures or self._run is None:
            return
        cycle = self._run.cycle
        for failure in failures:
            self._do(log("worker_failed", "warning", cycle=cycle, failure=str(failure), error_file=failure.error_file))
        told = fit_to_tell(failures, self.job.settings.rules, self.node.name)
        self._remember(replace(self.memory, failures=told))
        self._send(messages.WorkersFailed, cycle=cycle, failures=told)
        self._stop(self.job.timeouts.restart_grace, now)

    def _look_for_hangs(self, now: float) -> None:
        """What a hung worker does is written down before it is killed."""
        hung = self._hangs.tick(now)
        if hung and self._run is not None:
            for failure in hung:
                self._do(log("worker_hangs", "warning", cycle=self._run.cycle, failure=str(failure)))
            self._do(TakeStacks(self._run.cycle, tuple(failure.local_rank for failure in hung)))

    def _blame_hung(self, taken: StacksTaken, now: float) -> None:
        if self._run is not None and self._run.cycle == taken.cycle and self.state is State.ACTIVE:
            self._fail([failure for failure in self._hangs.blamed(taken) if not self._ignores(failure)], now)

    def _gone(self, cycle: Cycle, port: int, now: float) -> None:
        if self._run is None or cycle != self._run.cycle:
            return
        self._run, self._gone_by, self._port, self._fenced = None, None, port, False
        if self._end_as is not None:
            self._leave(self._end_as)
            return
        self._tell_alive(now)  # or the daemon would take us for one that has missed its fence
        self._send(messages.WorkersStopped, cycle=cycle, port=port)
        if self._next is not None:
            self._start(self._next, now)
        else:
            self._become(State.STANDBY)

    # -- the end

    def _close(self, verdict: Verdict, now: float) -> None:
        if self.memory.verdict is None:
            self._remember(replace(self.memory, verdict=verdict))
            interrupted = verdict.outcome is Outcome.INTERRUPTED
            signal = self.job.settings.interruption.signal if interrupted else "SIGTERM"
            self._end(Leave(verdict.exit_code, verdict, verdict.reason), self.job.last_grace(verdict), now, signal)

    def _terminate(self, reason: str, now: float) -> None:
        if self._alone.tell(reason, now):
            self._do(log("terminated", reason=reason))
            self._send(messages.Leaving, reason=reason)

    def _hear_of_another_policy(self, event: PolicyDiffers, now: float) -> None:
        """A node that has ever had a coordinator has its configuration: then the store is a stranger's."""
        self._do(log("policy_differs", "warning", reason=event.reason))
        if self.memory.promise != NO_PROMISE:
            return
        if event.certain:
            self._end(Leave(CONFIG_ERROR, None, event.reason), 0.0, now)
        else:
            self._alone.differs = self._alone.differs or (event.reason, now)

    def _end(self, leave: Leave, grace: float, now: float, signal: str = "SIGTERM") -> None:
        """Leave as soon as no worker is left. What ends the node first decides how; only a verdict overrides it."""
        if self._end_as is not None and self._run is None:
            return  # Leave was said
        if self._end_as is None or (self._end_as.verdict is None and leave.verdict is not None):
            self._end_as = leave
        self._next = None
        if self.state is not State.CLOSING:
            self._become(State.CLOSING, reason=leave.reason)
        if self._run is not None:
            self._stop(grace, now, signal)
        else:
            self._leave(self._end_as)

    def _leave(self, leave: Leave) -> None:
        self._send(messages.Goodbye, verdict=self.memory.verdict)
        self._do(leave)

    def _tick(self, now: float) -> None:
        self._tell_alive(now)
        if self.state is State.ACTIVE:
            self._look_for_hangs(now)
        if (dial := self._caller.tick(self.memory, now)) is not None:
            self._do(dial)
        if self._end_as is None:
            self._leave_if_alone(now)
            if self._run is None and self._caller.charged and self._alone.asks(now):
                self._register()  # the answer is what its coordinator wants of this node
        if self._gone_by is not None and now >= self._gone_by:
            code = self._end_as.code if self._end_as else INTERRUPTED
            self._do(Leave(code, self.memory.verdict, "workers that can't be ended"))

    def _leave_if_alone(self, now: float) -> None:
        found = self._alone.leave(self.memory.newest, self._lease.since, now, led=self._caller.charged)
        if found is not None:
            leave, grace = found
            self._end(leave, grace, now)

    def _look_if_over(self, now: float) -> None:
        """Without a coordinator the daemon looks for the verdict, not only at its next turn."""
        if self._alone.hinted:
            self._tell_alive(now)

    def _tell_alive(self, now: float) -> None:
        led = self._caller.charged or self._run is not None or self.state is State.CLOSING
        fence_in = None if self.fence_at is None else self.fence_at - now
        self._do(
            Tell(
                orders.Alive(
                    state=self.state.value if led else State.JOINING.value,
                    cycle=str(self.memory.newest) if self.memory.newest else "",
                    group_rank=self._run.group_rank if self._run else None,
                    fence_in=fence_in,
                    look=self._alone.hinted,
                )
            )
        )

    def _fence_is_over(self, now: float) -> bool:
        return self.fence_at is not None and now >= self.fence_at

    def _fence(self, now: float) -> None:
        """Our peers may be about to run our replacement: end our workers, with no grace."""
        if not self._fenced:
            self._fenced = True
            self._do(log("fenced", "warning", reason=f"no lease for {self.job.timeouts.fence:g} s"))
        self._next = None
        self._stop(0.0, now)

    # -- small things

    def _remember(self, memory: Memory) -> None:
        self.memory = memory
        self._do(Tell(orders.Remember(memory)))

    def _become(self, state: State, reason: str | None = None, **fields: object) -> None:
        self.state = state
        self._do(log(state.value, reason=reason, **fields))

    def _send(self, kind: type, **fields: object) -> None:
        if self._caller.connected:
            self._do(Send(kind(self.memory.promise, self.node.infra_rank, self.incarnation, **fields)))

    def _do(self, action: AgentAction) -> None:
        self._actions.append(action)

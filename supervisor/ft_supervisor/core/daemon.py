"""The daemon: starts, watches and ends the node's agent and (on a candidate) coordinator, and keeps their memory.

It ends when its agent has said Done, when its agent can't be kept alive, or when it was told to by a signal; the node
whose coordinator is closing the job only after that has ended too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_supervisor.core import actions
from ft_supervisor.core.actions import (
    DaemonAction,
    KillChild,
    Leave,
    LookForVerdict,
    RunChecks,
    SpawnAgent,
    SpawnCoordinator,
    Tell,
    WriteVerdict,
    log,
)
from ft_supervisor.core.events import (
    ChecksDone,
    ChildExited,
    DaemonEvent,
    Ended,
    Ordered,
    Signalled,
    SlurmAnswered,
    Tick,
)
from ft_supervisor.core.health import HealthMachine
from ft_supervisor.core.health import Outcome as CheckOutcome
from ft_supervisor.core.interruptions import ASK_BOUND
from ft_supervisor.core.keeper import Keeper
from ft_supervisor.core.model import (
    AGENT_RANK,
    EXIT_CODES,
    INTERRUPTED,
    KILL_BOUND,
    NO_PROMISE,
    Failure,
    Job,
    Memory,
    Node,
    Outcome,
    Verdict,
)
from ft_supervisor.core.orders import (
    Alive,
    AskSlurm,
    Check,
    Checked,
    Closed,
    Done,
    Listening,
    Order,
    Promise,
    Remember,
    Sick,
    Terminate,
)
from ft_supervisor.core.roster import candidates, first_candidate, is_candidate, survivable_losses
from ft_supervisor.core.settings import Cause, OnFail
from ft_supervisor.core.words import count

AGENT = "agent"
COORDINATOR = "coordinator"

DONE_BOUND = 5.0
"""Seconds from a child's Done to its exit."""

MAX_CRASHES = 10
"""Agents in a row that end within STEADY seconds until the node gives up."""

AGENT_PAUSE = (0.1, 5.0)
COORDINATOR_PAUSE = (0.2, 10.0)
"""Seconds before a child that has ended soon is replaced: see Keeper."""

WORKING = ("checking", "active", "stopping")
"""States of an agent that has been told to run a cycle."""

LOOK_PAUSE = 5.0
"""Seconds between looks for the run's verdict file while the agent finds no coordinator."""

FIRST_PAUSE = 0.5
"""Seconds between the first two of these where the job may be over; doubled up to LOOK_PAUSE."""


class DaemonMachine:
    """Pure: `handle` takes what happened and returns what to do. All times in seconds."""

    def __init__(self, job: Job, node: Node, now: float, epoch: float = 0.0) -> None:
        self.job = job
        self.node = node
        self.memory = Memory()
        self._agent = Keeper(job.timeouts.agent, AGENT_PAUSE)
        self._coordinator = Keeper(job.timeouts.agent, COORDINATOR_PAUSE)
        self._closed: Verdict | None = None
        """The job's verdict, once our coordinator has said so."""
        self._coordinator_done = False
        self._health = HealthMachine(job.settings.health)
        self._waits = any(check.on_fail is OnFail.EXCLUDE for check in self._health.at_start)
        """No agent before the checks at the start are over, as it would promise a node that may not be fit."""
        self._fence_at: float | None = None
        self._state = "joining"
        self._unled_since: float | None = now
        """None once a coordinator has led this node."""
        self._looked = now
        self._look_pause = LOOK_PAUSE
        self._may_be_over = False
        self._done: Done | None = None
        self._signalled: float | None = None
        self._met: float | None = None
        self._ending: Leave | None = None
        self._last_tick = now
        self._epoch = epoch
        self._actions: list[DaemonAction] = []

    def waited(self, now: float) -> float:
        """See orders.Begin."""
        return 0.0 if self._unled_since is None else now - self._unled_since

    def start(self, now: float) -> list[DaemonAction]:
        """The first actions."""
        self._actions = []
        if self.node.infra_rank == first_candidate(self.job):  # once is enough
            self._introduce()
        self._check(now)
        self._keep_coordinator(now)
        self._keep_agent(now)
        return self._actions

    def _introduce(self) -> None:
        job, losses = self.job, survivable_losses(self.job)
        names = ",".join(job.nodes[rank] for rank in candidates(job, None))
        self._do(
            log(
                "job",
                nodes=len(job.nodes),
                active=job.active,
                spares=len(job.nodes) - job.active,
                candidates=names,
                survives=f"the loss of any {count(losses, 'node')} at the same moment",
            )
        )

    def handle(self, event: DaemonEvent, now: float) -> list[DaemonAction]:
        """One event in, actions out, in order."""
        self._actions = []
        match event:
            case Ordered(child, order):
                self._ordered(child, order, now)
            case ChildExited(child, status):
                if child == AGENT:
                    self._agent_exited(status, now)
                else:
                    self._coordinator_exited(status, now)
            case Signalled(name):
                self._signal(name, now)
            case ChecksDone(number, outcomes):
                self._checked(number, outcomes, now)
            case SlurmAnswered(said):
                if self._coordinator.lives:
                    self._do(Tell(said, COORDINATOR))
            case Ended(verdict):
                self._find_verdict(verdict)
            case Tick():
                self._tick(now)
        return self._actions

    # -- health

    def _check(self, now: float) -> None:
        if self._ending is None and (round_ := self._health.due(now, standby=self._state == "standby")):
            self._do(RunChecks(round_))

    def _checked(self, number: int, outcomes: Sequence[CheckOutcome], now: float) -> None:
        news, cycle = self._health.results(number, outcomes, now)
        for finding in news:
            level = "info" if finding.effect is None else "warning"
            self._do(log("health", level, check=finding.check, effect=finding.effect, reason=finding.reason))
        problem = self._health.problem
        if problem is not None and self.memory.unhealthy is None:
            self.memory = replace(self.memory, unhealthy=problem)
            self._tell_agent(Sick(problem))
        if cycle:
            self._tell_agent(Checked(cycle, problem))
        if self._waits and self._health.ready:
            self._waits = False
            self._keep_agent(now)
        self._check(now)

    def _tell_agent(self, order: Order) -> None:
        if self._agent.lives:
            self._do(Tell(order))

    # -- the agent

    def _keep_agent(self, now: float) -> None:
        if self._waits or self._ending is not None or not self._agent.spawn(now):
            return
        self._done, self._fence_at = None, None
        self._do(SpawnAgent(self._agent.incarnation, self.memory))

    def _ordered(self, child: str, order: Order, now: float) -> None:
        if child == COORDINATOR:
            self._coordinator_ordered(order, now)
            return
        match order:
            case Alive(state=state, fence_in=fence_in, look=look):
                self._agent.alive, self._state = now, state
                self._met = self._met or now
                self._hurry(look, now)
                self._unled_since = self._unled_since if state == "joining" else None
                self._fence_at = None if fence_in is None else now + fence_in + self.job.timeouts.heartbeat
            case Remember(memory):
                news = memory.promise != self.memory.promise
                self.memory = self.memory.newer(memory)
                if news and self._coordinator.lives:
                    self._do(Tell(Promise(memory.promise), COORDINATOR))
            case Check(cycle):
                if not self._health.ask(cycle):
                    self._tell_agent(Checked(cycle, self.memory.unhealthy))
                self._check(now)
            case Done():
                self._done = order
                self._agent.kill_at = now + DONE_BOUND

    def _agent_exited(self, status: str, now: float) -> None:
        self._agent.exit(now)
        if self._done is not None:
            self._end(self._done.code, self._done.verdict or self.memory.verdict, self._done.reason, now)
        elif self.memory.verdict is not None:
            self._end(self.memory.verdict.exit_code, self.memory.verdict, self.memory.verdict.reason, now)
        elif self._signalled is not None:
            self._end(EXIT_CODES[Outcome.CANCELLED], None, "told to end by a signal", now)
        elif self._ending is None:
            self._replace_agent(status, now)

    def _replace_agent(self, status: str, now: float) -> None:
        agent = self._agent
        self._do(log("agent_lost", "warning", status=status, incarnation=agent.incarnation, crashes=agent.crashes))
        if agent.crashes >= MAX_CRASHES:
            self._end(INTERRUPTED, None, f"{MAX_CRASHES} agents in a row ended at once, the last: {status}", now)
        else:
            self._keep_agent(now)

    # -- the coordinator

    def _keep_coordinator(self, now: float) -> None:
        """A candidate keeps one. The first candidate's starts at once; the others are needed when that has been met,
        or when it does not come."""
        first = self.node.infra_rank == first_candidate(self.job)
        waited = self._met is not None and now - self._met >= self.job.timeouts.node_lost
        needed = first or waited or self.memory.promise != NO_PROMISE
        needed = needed and self._closed is None and is_candidate(self.job, self.node.infra_rank, self.memory)
        if needed and self._ending is None and self._coordinator.spawn(now):
            self._do(SpawnCoordinator(self._coordinator.incarnation, self.memory))

    def _coordinator_ordered(self, order: Order, now: float) -> None:
        match order:
            case Alive():
                self._coordinator.alive = now
            case AskSlurm(urgent):
                self._do(actions.CallSlurm(urgent))
            case Listening(port):
                self._do(log("coordinator_listens", port=port))
            case Closed(verdict):
                self._closed = verdict
            case Done():
                self._coordinator_done = True
                self._coordinator.kill_at = now + DONE_BOUND

    def _coordinator_exited(self, status: str, now: float) -> None:
        self._coordinator.exit(now)
        if not self._coordinator_done and (self._ending is None or self._closed is not None):
            self._do(log("coordinator_lost", "warning", status=status, crashes=self._coordinator.crashes))
            if self._closed is not None:  # it may not have come to writing the file
                self._do(WriteVerdict(self._closed, shared=True))
        if self._ending is not None:
            self._do(self._ending)

    # -- the end

    def _signal(self, name: str, now: float) -> None:
        if self._signalled is None:
            self._signalled = now
            self._do(log("signalled", "warning", name=name))
            if self._agent.lives:
                timeouts = self.job.timeouts
                self._do(Tell(Terminate(name)))
                patience = self.job.longest_grace + 2 * timeouts.coordinator + ASK_BOUND + KILL_BOUND + 10.0
                self._agent.kill_at = self._agent.kill_at or now + patience
            elif self._ending is None:
                self._end(EXIT_CODES[Outcome.CANCELLED], None, f"told to end by {name}", now)
        elif name == "SIGINT" and now - self._signalled > 0.5:  # a person, for the second time
            self._agent.kill_at = self._coordinator.kill_at = now

    def _hurry(self, may_be_over: bool, now: float) -> None:
        """Where the job may be over, the first look is at once, and the next ones follow soon."""
        former, self._may_be_over = self._may_be_over, may_be_over and self._state == "joining"
        if not self._may_be_over:
            self._look_pause = LOOK_PAUSE
        elif not former:
            self._look_pause = FIRST_PAUSE / 2
            self._look(now)

    def _look(self, now: float) -> None:
        """Our agent finds no coordinator, perhaps because the job is over."""
        if self._state == "joining" and self._ending is None:
            self._looked, self._look_pause = now, min(2 * self._look_pause, LOOK_PAUSE)
            self._do(LookForVerdict())

    def _find_verdict(self, verdict: Verdict) -> None:
        """The run's verdict file is there, and our agent has no coordinator to hear it from."""
        if self.memory.verdict is None and self._ending is None and self._done is None:
            self.memory = replace(self.memory, verdict=verdict)
            self._do(log("verdict_found", outcome=verdict.outcome.value, reason=verdict.reason))
            if self._agent.lives:
                self._do(KillChild(AGENT))
            else:
                self._end(verdict.exit_code, verdict, verdict.reason, self._last_tick)

    def _end(self, code: int, verdict: Verdict | None, reason: str, now: float) -> None:
        if self._ending is not None:
            return
        self._ending = Leave(code, verdict, reason)
        if verdict is not None:
            self._do(WriteVerdict(verdict))
        if not self._coordinator.lives:
            self._do(self._ending)
        elif self._closed is None:  # if it is in charge at all, another one will be
            self._do(KillChild(COORDINATOR))
        else:
            timeouts = self.job.timeouts
            bound = self.job.longest_grace + timeouts.close_grace + KILL_BOUND + 5.0
            self._coordinator.kill_at = self._coordinator.kill_at or now + bound

    def _tick(self, now: float) -> None:
        late = now - self._last_tick - 2 * self.job.timeouts.heartbeat
        self._last_tick = now
        if late > 0:  # this daemon stood still, and may not have read what its children said
            self._agent.forgive(late, now)
            self._coordinator.forgive(late, now)
        self._check(now)
        self._keep_agent(now)
        self._keep_coordinator(now)
        if self._agent.lives and self._agent.kill_at is None:
            self._watch_agent(now)
        if self._coordinator.kill_at is None and self._coordinator.hangs(now):
            self._do(log("coordinator_silent", "warning"))
            self._coordinator.kill_at = now
        for child, keeper in ((AGENT, self._agent), (COORDINATOR, self._coordinator)):
            if keeper.is_due(now):
                self._do(KillChild(child))
        if now - self._looked >= self._look_pause:
            self._look(now)

    def _watch_agent(self, now: float) -> None:
        agent, silence = self._agent, self._agent.silence(now)
        fenced = self._fence_at is not None and now >= self._fence_at  # and the agent had its chance to do it itself
        if not agent.hangs(now) and not fenced:
            return
        self._do(log("agent_silent", "warning", seconds=round(silence, 1), incarnation=agent.incarnation))
        self._agent.kill_at = now
        if agent.hangs(now) and self._state in WORKING and not self.memory.failures:
            message = f"not heard by its daemon for {silence:.1f} s"
            at = self._epoch + now
            failure = Failure(self.node.infra_rank, AGENT_RANK, message=message, time=at, cause=Cause.HANG)
            self.memory = replace(self.memory, failures=(failure,))

    def _do(self, action: DaemonAction) -> None:
        self._actions.append(action)

"""The daemon: starts, watches and ends the node's agent and (on a candidate) coordinator, and keeps their memory.

It ends after its agent has sent Done, when its agent cannot be kept alive, or because of a signal. A node whose
coordinator closes the job ends after that coordinator. TRANSITIONS below has the daemon's states, and what leads from
one to the next. leaving.py has what the daemon does once its children are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from ft_supervisor.core.coordinator.interruptions import ASK_BOUND
from ft_supervisor.core.daemon.agent_end import AgentEnd, with_own_failure
from ft_supervisor.core.daemon.child_watch import ChildWatch
from ft_supervisor.core.daemon.health import HealthMachine
from ft_supervisor.core.daemon.leaving import Leaving
from ft_supervisor.core.daemon.verdict_search import VerdictSearch
from ft_supervisor.core.protocol import actions, events, orders
from ft_supervisor.core.protocol import daemon_facts as facts
from ft_supervisor.core.protocol.actions import Announce, Tell
from ft_supervisor.core.protocol.health_types import CheckOutcome
from ft_supervisor.core.protocol.model import (
    EXIT_CODES,
    INTERRUPTED,
    KILL_BOUND,
    NO_PROMISE,
    Job,
    Memory,
    Node,
    Outcome,
    Verdict,
)
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.settings import Cause, OnFail
from ft_supervisor.core.protocol.summary import line
from ft_supervisor.core.quorum.roster import candidates, first_candidate, is_candidate, survivable_losses
from ft_supervisor.core.transitions import check_transition

AGENT = "agent"
COORDINATOR = "coordinator"

DONE_BOUND = 5.0
"""Seconds from a child's Done to its exit."""

MAX_CRASHES = 10
"""Agents in a row that end within STEADY_LIFE seconds of their start, after which the node gives up."""

AGENT_PAUSE = (0.1, 5.0)
COORDINATOR_PAUSE = (0.2, 10.0)
"""Seconds before a child that has ended soon after its start is replaced: see ChildWatch."""


class State(StrEnum):
    """What the daemon does."""

    CHECKING = "checking"
    """The health checks at the start run. There is no agent yet: it would promise a node that may not be fit."""
    SERVING = "serving"
    """An agent runs, or the next one is about to be started."""
    ENDING = "ending"
    """The agent is gone for good. The node's coordinator closes the job, or has been killed."""
    LEAVING = "leaving"
    """No child is left: see Leaving."""


TRANSITIONS: Mapping[State, Mapping[State, str]] = {
    State.CHECKING: {State.SERVING: "the checks are over", State.ENDING: "a signal, or the verdict's file was found"},
    State.SERVING: {State.ENDING: "the agent is gone, and no other one is to follow"},
    State.ENDING: {State.LEAVING: "no child is left"},
    State.LEAVING: {},
}


class DaemonMachine:
    """Pure: `handle` takes what happened and returns what to do. All times in seconds."""

    def __init__(self, job: Job, node: Node, now: float, epoch: float = 0.0) -> None:
        self.job = job
        self.node = node
        self.memory = Memory()
        self._agent = ChildWatch(job.timeouts.agent, AGENT_PAUSE)
        self._coordinator = ChildWatch(job.timeouts.agent, COORDINATOR_PAUSE)
        self._decided: orders.VerdictDecided | None = None
        """The newest VerdictDecided of our coordinator, which has the job's verdict."""
        self._coordinator_done = False
        self._health = HealthMachine(job.settings.health)
        waits = any(check.on_fail is OnFail.EXCLUDE for check in self._health.at_start)
        self.state = State.CHECKING if waits else State.SERVING
        self._fence_at: float | None = None
        self._agent_state = AgentState.JOINING
        self._agent_end = AgentEnd(node)
        self._unled_since: float | None = now
        """When the search for the first coordinator began; None once a coordinator has led this node."""
        self._search = VerdictSearch(now)
        self._done: orders.Done | None = None
        self._signalled: float | None = None
        self._met: float | None = None
        self._batch: events.InBatchJob | None = None
        self._leave: actions.Leave | None = None
        """How this daemon leaves; None while it serves."""
        self._leaving: Leaving | None = None
        self._last_tick, self._epoch = now, epoch
        self._actions: list[actions.DaemonAction] = []

    def waited(self, now: float) -> float:
        """Return for how many seconds this node has been looking for its first coordinator; 0 once it had one."""
        return 0.0 if self._unled_since is None else now - self._unled_since

    @property
    def due(self) -> float | None:
        """When a Tick is needed at the latest, beside those of each heartbeat; None: at no time."""
        return None if self._leaving is None else self._leaving.due

    def validate(self) -> None:
        """Raise AssertionError where the fields contradict the state."""
        state = self.state
        assert self._serving == (self._leave is None), state
        assert not self._agent.lives or state is State.SERVING, state
        assert self._serving or self._coordinator.lives == (state is State.ENDING), state
        assert (self._leaving is not None) == (state is State.LEAVING), state
        self._agent.validate()
        self._coordinator.validate()
        if self._leaving is not None:
            self._leaving.validate()

    def start(self, now: float) -> list[actions.DaemonAction]:
        """Return the first actions."""
        self._actions = []
        if self.node.infra_rank == first_candidate(self.job):  # once is enough
            self._introduce()
        self._check(now)
        self._keep_coordinator(now)
        self._keep_agent(now)
        return self._actions

    def _introduce(self) -> None:
        self._announce(facts.JobIntroduced(tuple(candidates(self.job, None)), survivable_losses(self.job)))

    def handle(self, event: events.DaemonEvent, now: float) -> list[actions.DaemonAction]:
        """Take one event, and return what to do, in order."""
        self._actions = []
        if self._leaving is not None:
            self._actions += self._leaving.handle(event, now)
        else:
            self._serve(event, now)
        return self._actions

    def _serve(self, event: events.DaemonEvent, now: float) -> None:
        match event:
            case events.InBatchJob():
                self._batch = event
            case events.Ordered(child, order):
                self._ordered(child, order, now)
            case events.ChildExited(child, status):
                if child == AGENT:
                    self._agent_exited(status, now)
                else:
                    self._coordinator_exited(status, now)
            case events.Signalled(name):
                self._signal(name, now)
            case events.ChecksDone(number, outcomes):
                self._checked(number, outcomes, now)
            case events.SlurmAnswered(said):
                if self._coordinator.lives:
                    self._do(Tell(said, COORDINATOR))
            case events.VerdictFileFound(verdict):
                self._find_verdict(verdict)
            case events.Tick():
                self._tick(now)

    @property
    def _serving(self) -> bool:
        return self.state in (State.CHECKING, State.SERVING)

    # -- health

    def _check(self, now: float) -> None:
        if self._serving and (round_ := self._health.due(now, standby=self._agent_state is AgentState.STANDBY)):
            self._do(actions.RunChecks(round_))

    def _checked(self, number: int, outcomes: Sequence[CheckOutcome], now: float) -> None:
        news, cycle = self._health.results(number, outcomes, now)
        for finding in news:
            self._announce(facts.CheckChanged(finding.check, finding.effect, finding.reason))
        problem = self._health.problem
        if problem is not None and self.memory.unhealthy is None:
            self.memory = replace(self.memory, unhealthy=problem)
            self._tell_agent(orders.Sick(problem))
        if cycle:
            self._tell_agent(orders.Checked(cycle, problem))
        if self.state is State.CHECKING and self._health.ready:
            self._become(State.SERVING)
            self._keep_agent(now)
        self._check(now)

    def _tell_agent(self, order: orders.Order) -> None:
        if self._agent.lives:
            self._do(Tell(order))

    # -- the agent

    def _keep_agent(self, now: float) -> None:
        if self.state is not State.SERVING or not self._agent.spawn(now):
            return
        self._done, self._fence_at = None, None
        self._do(actions.SpawnAgent(self._agent.incarnation, self.memory))

    def _ordered(self, child: str, order: orders.Order, now: float) -> None:
        if child == COORDINATOR:
            self._coordinator_ordered(order, now)
            return
        match order:
            case orders.Alive(state=AgentState() as state):
                self._agent_alive(state, order, now)
            case orders.Reached():
                self._agent_end.reached(order, self._agent.incarnation)
            case orders.Remember(memory):
                former, self.memory = self.memory, self.memory.newer(memory)
                self._agent_state = self._agent_state if memory.newest == former.newest else AgentState.CHECKING
                if memory.promise != former.promise and self._coordinator.lives:
                    self._do(Tell(orders.Promise(memory.promise), COORDINATOR))
            case orders.Check(cycle):
                if not self._health.ask(cycle):
                    self._tell_agent(orders.Checked(cycle, self.memory.unhealthy))
                self._check(now)
            case orders.Done():
                self._done = order
                self._agent.kill(now + DONE_BOUND)

    def _agent_alive(self, state: AgentState, alive: orders.Alive, now: float) -> None:
        self._agent.heard(now)
        self._agent_end.replaced()
        self._agent_state, joining = state, state is AgentState.JOINING
        self._met = self._met or now
        if self._search.heard(joining, alive.look, now):
            self._look()
        self._unled_since = self._unled_since if joining else None
        self._fence_at = None if alive.fence_in is None else now + alive.fence_in + self.job.timeouts.heartbeat

    def _agent_exited(self, status: str, now: float) -> None:
        self._agent.exit(now)
        if self._done is not None:
            self._end(self._done.code, self._done.verdict or self.memory.verdict, self._done.reason, now)
        elif self.memory.verdict is not None:
            self._end(self.memory.verdict.exit_code, self.memory.verdict, self.memory.verdict.reason, now)
        elif self._signalled is not None:
            self._end(EXIT_CODES[Outcome.CANCELLED], None, "told to end by a signal", now)
        elif self._serving:
            self._replace_agent(status, now)

    def _replace_agent(self, status: str, now: float) -> None:
        agent = self._agent
        self._announce(facts.AgentLost(status, agent.incarnation, agent.crashes))
        self._blame_agent(status, Cause.EXIT, now)
        self._actions += self._agent_end.gone(self.memory)
        if agent.crashes >= MAX_CRASHES:
            self._end(INTERRUPTED, None, f"{MAX_CRASHES} agents in a row ended at once, the last: {status}", now)
        else:
            self._keep_agent(now)

    # -- the coordinator

    def _keep_coordinator(self, now: float) -> None:
        """Start one on a candidate: on the first at once, elsewhere once the first has been met, or does not come."""
        first = self.node.infra_rank == first_candidate(self.job)
        waited = self._met is not None and now - self._met >= self.job.timeouts.node_lost
        needed = first or waited or self.memory.promise != NO_PROMISE
        needed = needed and self._decided is None and is_candidate(self.job, self.node.infra_rank, self.memory)
        if needed and self._serving and self._coordinator.spawn(now):
            self._do(actions.SpawnCoordinator(self._coordinator.incarnation, self.memory))

    def _coordinator_ordered(self, order: orders.Order, now: float) -> None:
        match order:
            case orders.Alive():
                self._coordinator.heard(now)
            case orders.AskSlurm(urgent):
                self._do(actions.CallSlurm(urgent))
            case orders.Listening(port):
                self._announce(facts.CoordinatorListens(port))
            case orders.VerdictDecided():
                self._decided = order
            case orders.Done():
                self._coordinator_done = True
                self._coordinator.kill(now + DONE_BOUND)

    def _coordinator_exited(self, status: str, now: float) -> None:
        self._coordinator.exit(now)
        if not self._coordinator_done and (self._serving or self._decided is not None):
            self._announce(facts.CoordinatorLost(status, self._coordinator.crashes))
            if self._decided is not None:  # it may have died before it wrote the file
                self._write_verdict(self._decided.verdict, shared=True)
        if self.state is State.ENDING:
            self._go(now)

    # -- the end

    def _signal(self, name: str, now: float) -> None:
        if self._signalled is None:
            self._signalled = now
            self._announce(facts.DaemonSignalled(name))
            if self._agent.lives:
                self._do(Tell(orders.Terminate(name)))
                longest = self.job.longest_grace + 2 * self.job.timeouts.coordinator
                if not self._agent.doomed:
                    self._agent.kill(now + longest + ASK_BOUND + KILL_BOUND + 10.0)
            elif self._serving:
                self._end(EXIT_CODES[Outcome.CANCELLED], None, f"told to end by {name}", now)
        elif name == "SIGINT" and now - self._signalled > 0.5:  # a person, for the second time
            self._agent.kill(now)
            self._coordinator.kill(now)

    def _look(self) -> None:
        if self._serving:
            self._do(actions.LookForVerdict())

    def _find_verdict(self, verdict: Verdict) -> None:
        """The run's verdict file was found, and the agent has no coordinator that could send the verdict."""
        if self.memory.verdict is None and self._serving and self._done is None:
            self.memory = replace(self.memory, verdict=verdict)
            self._announce(facts.VerdictFound(verdict))
            if self._agent.lives:
                self._do(actions.KillChild(AGENT))
            else:
                self._end(verdict.exit_code, verdict, verdict.reason, self._last_tick)

    def _end(self, code: int, verdict: Verdict | None, reason: str, now: float) -> None:
        """The agent is gone for good. Take how the node leaves, and end its coordinator."""
        if not self._serving:
            return
        self._become(State.ENDING)
        self._leave = actions.Leave(code, verdict, reason)
        if verdict is not None:
            self._write_verdict(verdict)
        if not self._coordinator.lives:
            self._go(now)
        elif self._decided is None:  # if it is in charge at all, another one will be
            self._do(actions.KillChild(COORDINATOR))
        elif not self._coordinator.doomed:
            self._coordinator.kill(now + self.job.longest_grace + self.job.timeouts.close_grace + KILL_BOUND + 5.0)

    def _go(self, now: float) -> None:
        """No child is left."""
        assert self._leave is not None
        accepted = self.memory.accepted
        self._leaving = Leaving(self.job, self.node.name, self._leave, self._batch, self._decided, accepted)
        self._become(State.LEAVING)
        self._actions += self._leaving.begin(now)

    def _write_verdict(self, verdict: Verdict, *, shared: bool = False) -> None:
        """Have the file written, with the line for Slurm's accounting if our coordinator has decided so."""
        decided = self._decided if self._decided is not None and self._decided.verdict == verdict else None
        summary = "" if decided is None else line(decided.summary, verdict, self.job.run_id)
        self._do(actions.CopyVerdict(verdict, shared, summary))

    def _tick(self, now: float) -> None:
        late = now - self._last_tick - 2 * self.job.timeouts.heartbeat
        self._last_tick = now
        if late > 0:  # this daemon stood still, and may not have read its children's orders
            self._agent.forgive(late, now)
            self._coordinator.forgive(late, now)
        self._check(now)
        self._actions += self._agent_end.say() if self._serving else []
        self._keep_agent(now)
        self._keep_coordinator(now)
        if self._agent.lives and not self._agent.doomed:
            self._watch_agent(now)
        if not self._coordinator.doomed and self._coordinator.hangs(now):
            self._announce(facts.CoordinatorSilent())
            self._coordinator.kill(now)
        for child, watch in ((AGENT, self._agent), (COORDINATOR, self._coordinator)):
            if watch.is_due(now):
                self._do(actions.KillChild(child))
        if self._search.due(now):
            self._look()

    def _watch_agent(self, now: float) -> None:
        agent, silence = self._agent, self._agent.silence(now)
        fenced = self._fence_at is not None and now >= self._fence_at  # and the agent had its chance to do it itself
        if not agent.hangs(now) and not fenced:
            return
        self._announce(facts.AgentSilent(silence, agent.incarnation))
        self._agent.kill(now)
        if agent.hangs(now):
            self._blame_agent(f"not heard by its daemon for {silence:.1f} s", Cause.HANG, now, silence)

    def _blame_agent(self, what: str, cause: Cause, now: float, silent: float = 0.0) -> None:
        at = self._epoch + now
        self.memory = with_own_failure(self.memory, self.node, self._agent_state, what, cause, at, silent)

    def _announce(self, fact: facts.DaemonFact) -> None:
        self._do(Announce(fact))

    def _become(self, state: State) -> None:
        check_transition(TRANSITIONS, self.state, state)
        self.state = state

    def _do(self, action: actions.DaemonAction) -> None:
        self._actions.append(action)

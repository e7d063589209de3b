"""A world in one thread around the real machines: store, network, processes and clocks are pretended, faults are not.

Everything is driven by one seed. `World.run` lets the job live to its end and checks the invariants of the design on
the way (numbers as in its section 9); a breach raises Breach.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ft_supervisor.core import actions, events, messages, orders
from ft_supervisor.core.agent import AgentMachine
from ft_supervisor.core.coordinator import CoordinatorMachine
from ft_supervisor.core.daemon import DaemonMachine
from ft_supervisor.core.model import Cycle, Failure, Job, Memory, Node, Outcome, Timeouts, Verdict

TIMEOUTS = Timeouts(stop_grace=5.0, join=60.0, exit_barrier=20.0)


class Breach(AssertionError):
    """An invariant does not hold."""


@dataclass
class SimWorkers:
    """The workers of one node; `stubborn` ones end only by SIGKILL."""

    cycle: Cycle
    group_rank: int
    stubborn: bool


@dataclass
class SimAgent:
    """One agent process: its machine, and what its shell does."""

    machine: AgentMachine
    incarnation: int
    alive: bool = True
    frozen_until: float = 0.0
    connected: bool = False
    attempt: int = 0
    answered: float = 0.0
    lease: int = -1
    backlog: list[events.AgentEvent] = field(default_factory=list)
    sent_at: float = 0.0
    kill_at: float | None = None
    stop_cycle: Cycle | None = None


@dataclass
class SimNode:
    """One machine: a daemon, perhaps an agent, perhaps workers."""

    node: Node
    daemon: DaemonMachine
    up: bool = True
    code: int | None = None
    agent: SimAgent | None = None
    workers: SimWorkers | None = None
    cut: bool = False
    daemon_kept: list[Verdict] = field(default_factory=list)


class World:
    """`nodes` nodes of which `active` train; work of a cycle lasts `work` seconds."""

    def __init__(
        self,
        seed: int,
        nodes: int = 4,
        active: int = 3,
        max_restarts: int = 3,
        work: float = 8.0,
        make: Callable[[Job, float], CoordinatorMachine] = CoordinatorMachine,
        make_agent: Callable[[Job, Node, int, Memory, float], AgentMachine] = AgentMachine,
    ) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.work = work
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        names = tuple(f"n{i}" for i in range(nodes))
        self.job = Job("1.0.0", names, ("n0",), (1,), "/r", "/l", active, 1, ("x",), (), max_restarts, TIMEOUTS)
        self._make, self._make_agent = make, make_agent
        self.coordinator: CoordinatorMachine | None = None
        self.coordinator_frozen = 0.0
        self.inbox_free = 0.0
        self.mail: dict[tuple[int, int], list[messages.ToAgent]] = {}
        self.mail_free: dict[tuple[int, int], float] = {}
        self.heartbeats: dict[int, int] = {}
        self.seen_heartbeats: dict[int, int] = {}
        self.lease = 0
        self.permanent_close: Verdict | None = None
        self.recorded: list[Verdict] = []
        self.barrier: dict[Cycle, int] = {}
        self.old_mail: list[tuple[int, int, messages.ToAgent]] = []
        self.old_words: list[messages.ToCoordinator] = []
        self.ranks: dict[Cycle, dict[int, int]] = {}
        self.worked: dict[Cycle, set[int]] = {}
        self.fails: Callable[[int, Cycle], bool] = lambda _node, _cycle: False
        self.stubborn: Callable[[int], bool] = lambda _node: False
        self.log: list[str] = []
        self.nodes = [SimNode(Node(i, n, n), DaemonMachine(self.job, Node(i, n, n), 0.0)) for i, n in enumerate(names)]
        for sim in self.nodes:
            self.after(self.random.uniform(0, 2.0), lambda sim=sim: self._start_daemon(sim))  # type: ignore[misc]

    # -- time

    def after(self, delay: float, deed: Callable[[], None]) -> None:
        """Do `deed` in `delay` seconds."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + max(delay, 0.0), self._count, deed))

    def run(self, limit: float = 400.0) -> None:
        """Live until every daemon has left. Raises Breach, also when that lasts longer than `limit` seconds (6)."""
        while any(sim.up for sim in self.nodes):
            if not self._heap or self.now > limit:
                left = [sim.node.name for sim in self.nodes if sim.up]
                raise Breach(f"6: after {self.now:.0f} s {left} are still there")
            self.now, _, deed = heapq.heappop(self._heap)
            deed()
            self._check()
        self._check_end()

    def note(self, text: str) -> None:
        """One line of the history that a failing seed prints."""
        self.log.append(f"{self.now:8.3f} {text}")

    # -- daemons

    def _start_daemon(self, sim: SimNode) -> None:
        if sim.up:
            sim.daemon = DaemonMachine(self.job, sim.node, self.now)
            self._do_daemon(sim, sim.daemon.start(self.now))
            self._tick_daemon(sim)

    def _tick_daemon(self, sim: SimNode) -> None:
        if sim.up:
            self.tell_daemon(sim, events.Tick())
            self.after(TIMEOUTS.heartbeat, lambda: self._tick_daemon(sim))

    def tell_daemon(self, sim: SimNode, event: events.DaemonEvent) -> None:
        """An event for a living daemon."""
        if sim.up:
            self._do_daemon(sim, sim.daemon.handle(event, self.now))

    def _do_daemon(self, sim: SimNode, todo: list[actions.DaemonAction]) -> None:
        for action in todo:
            match action:
                case actions.SpawnAgent(incarnation, memory):
                    self._spawn_agent(sim, incarnation, memory)
                case actions.SpawnCoordinator():
                    self.after(self.random.uniform(0.1, 2.0), lambda: self._start_coordinator(sim))
                case actions.KillChild("agent"):
                    self.kill_agent(sim)
                case actions.KillChild(_):
                    self.kill_coordinator()
                case actions.Tell(order) if sim.agent is not None:
                    assert isinstance(order, orders.Terminate)
                    agent, reason = sim.agent, order.reason
                    self.after(0.001, lambda: self.tell_agent(sim, agent, events.Terminated(reason)))  # noqa: B023
                case actions.WriteVerdict(verdict, shared):
                    sim.daemon_kept.append(verdict)
                    if shared and not self.recorded:
                        self.recorded.append(verdict)
                case actions.LookForVerdict():
                    if self.recorded:
                        found = self.recorded[0]
                        self.after(0.01, lambda: self.tell_daemon(sim, events.Ended(found)))  # noqa: B023
                case actions.Leave(code, _, reason):
                    self.note(f"{sim.node.name} leaves with {code}: {reason}")
                    code = self.recorded[0].exit_code if code == 75 and self.recorded else code
                    self.kill_node(sim, code)
                    return

    def kill_node(self, sim: SimNode, code: int | None = None) -> None:
        """Everything of the node is gone at once; with `code`, because its daemon left."""
        if sim.up:
            if code is not None and sim.workers is not None:
                sim.workers = None  # the daemon's last sweep
            sim.up, sim.code, sim.workers = False, code, None
            if sim.agent is not None:
                sim.agent.alive = False
            if sim.node.infra_rank == 0:
                self.coordinator = None

    # -- agents and workers

    def _spawn_agent(self, sim: SimNode, incarnation: int, memory: Memory) -> None:
        def begin() -> None:
            if sim.up and agent.alive:
                agent.machine = self._make_agent(self.job, sim.node, incarnation, memory, self.now)
                agent.answered = self.now
                self._tick_agent(sim, agent)
                self._connect(sim, agent)

        sim.agent = agent = SimAgent(AgentMachine(self.job, sim.node, incarnation, memory, self.now), incarnation)
        self.after(self.random.uniform(0.1, 3.0), begin)

    def kill_agent(self, sim: SimNode) -> None:
        """SIGKILL to the agent; its workers die with it."""
        agent = sim.agent
        if sim.up and agent is not None and agent.alive:
            agent.alive, sim.workers = False, None
            self.after(0.05, lambda: self.tell_daemon(sim, events.ChildExited("agent", "killed")))

    def _tick_agent(self, sim: SimNode, agent: SimAgent) -> None:
        if not agent.alive:
            return
        self.tell_agent(sim, agent, events.Tick())
        if agent.kill_at is not None and self.now >= agent.kill_at and self.now >= agent.frozen_until:
            self._workers_gone(sim, agent)
        self.after(TIMEOUTS.heartbeat, lambda: self._tick_agent(sim, agent))

    def tell_agent(self, sim: SimNode, agent: SimAgent, event: events.AgentEvent) -> None:
        """An event for a living agent; a frozen one hears it later, ticks excepted."""
        if not agent.alive:
            return
        if self.now < agent.frozen_until:
            if not isinstance(event, events.Tick):
                agent.backlog.append(event)
                self.after(agent.frozen_until - self.now + 0.001, lambda: self._thaw(sim, agent))
            return
        self._thaw(sim, agent)
        self._do_agent(sim, agent, agent.machine.handle(event, self.now))

    def _thaw(self, sim: SimNode, agent: SimAgent) -> None:
        while agent.alive and agent.backlog and self.now >= agent.frozen_until:
            self._do_agent(sim, agent, agent.machine.handle(agent.backlog.pop(0), self.now))

    def _do_agent(self, sim: SimNode, agent: SimAgent, todo: list[actions.AgentAction]) -> None:
        for action in todo:
            if not agent.alive:
                return
            match action:
                case actions.Send(message):
                    self._send(sim, agent, message)
                case actions.Tell(order):
                    self.tell_daemon(sim, events.Ordered("agent", order))
                case actions.Start(run):
                    self._start_workers(sim, agent, run)
                case actions.StopWorkers(cycle, grace):
                    self._stop_workers(sim, agent, cycle, grace)
                case actions.EnterBarrier(cycle, _) if agent.connected and self._reaches(sim):
                    self.barrier[cycle] = self.barrier.get(cycle, 0) + 1
                case actions.Leave(code, verdict, reason):
                    agent.alive, sim.workers = False, None
                    self.tell_daemon(sim, events.Ordered("agent", orders.Done(code, verdict, reason)))
                    self.after(0.01, lambda: self.tell_daemon(sim, events.ChildExited("agent", "exited")))

    def _start_workers(self, sim: SimNode, agent: SimAgent, run: messages.Run) -> None:
        self.note(f"{sim.node.name} starts {run.cycle} as {run.group_rank}")
        if sim.workers is not None:
            raise Breach(f"1: {sim.node.name} starts {run.cycle} beside {sim.workers.cycle}")
        for other in self.nodes:
            if other.workers is not None and other.workers.cycle < run.cycle:
                raise Breach(f"10: {run.cycle} starts while {other.node.name} still runs {other.workers.cycle}")
        holder = self.ranks.setdefault(run.cycle, {}).setdefault(run.group_rank, sim.node.infra_rank)
        if holder != sim.node.infra_rank:
            raise Breach(f"2: n{holder} and {sim.node.name} are both {run.group_rank} of {run.cycle}")
        if self.permanent_close is not None and self.recorded and self.now - self.closed_at > TIMEOUTS.fence + 1:
            raise Breach(f"4: {sim.node.name} starts {run.cycle} after the verdict")
        sim.workers = workers = SimWorkers(run.cycle, run.group_rank, self.stubborn(sim.node.infra_rank))
        fails = self.fails(sim.node.infra_rank, run.cycle)
        lasts = self.random.uniform(0, self.work) if fails else self.work + self.random.uniform(0, 0.5)
        self.after(lasts, lambda: self._workers_exit(sim, agent, workers, fails))

    def _workers_exit(self, sim: SimNode, agent: SimAgent, workers: SimWorkers, fails: bool) -> None:
        if sim.workers is not workers or agent.stop_cycle == workers.cycle:
            return
        failures = (Failure(sim.node.infra_rank, 0, 1),) if fails else ()
        if not fails:
            sim.workers = None
            self.worked.setdefault(workers.cycle, set()).add(sim.node.infra_rank)
        self.tell_agent(sim, agent, events.WorkersExited(workers.cycle, failures))

    def _stop_workers(self, sim: SimNode, agent: SimAgent, cycle: Cycle, grace: float) -> None:
        agent.stop_cycle = cycle
        kill_at = self.now + grace + self.random.uniform(0.0, 0.5)
        agent.kill_at = kill_at if agent.kill_at is None else min(kill_at, agent.kill_at)
        if sim.workers is None or not sim.workers.stubborn:
            agent.kill_at = min(agent.kill_at, self.now + self.random.uniform(0.0, 0.8))
        at = agent.kill_at - self.now
        self.after(at, lambda: self._workers_gone(sim, agent, cycle))

    def _workers_gone(self, sim: SimNode, agent: SimAgent, cycle: Cycle | None = None) -> None:
        if not agent.alive or agent.kill_at is None or self.now < agent.kill_at or self.now < agent.frozen_until:
            return
        gone, agent.stop_cycle, agent.kill_at, sim.workers = agent.stop_cycle, None, None, None
        if gone is not None and (cycle is None or cycle == gone):
            self.tell_agent(sim, agent, events.WorkersGone(gone, 9))

    # -- the store

    def _reaches(self, sim: SimNode) -> bool:
        return sim.up and not sim.cut and not self.nodes[0].cut and self.coordinator is not None

    def _connect(self, sim: SimNode, agent: SimAgent) -> None:
        if not agent.alive or agent.connected:
            return
        if self._reaches(sim) and self.now >= agent.frozen_until:
            agent.connected, agent.answered = True, self.now
            agent.attempt += 1
            attempt = agent.attempt
            self.tell_agent(sim, agent, events.Connected(9))
            self._beat(sim, agent, attempt)
            self._deliver(sim, agent)
        else:
            self.after(0.3, lambda: self._connect(sim, agent))

    def _beat(self, sim: SimNode, agent: SimAgent, attempt: int) -> None:
        """One round of the heartbeat connection, and the look of the main loop at how it goes."""
        if not agent.alive or not agent.connected or agent.attempt != attempt:
            return
        if self._reaches(sim):
            self._deliver(sim, agent)  # what was on the way through a short cut
            if self.now >= agent.frozen_until:
                agent.answered, asked = self.now, self.now
                self.heartbeats[sim.node.infra_rank] = self.heartbeats.get(sim.node.infra_rank, 0) + 1
                if self.lease > agent.lease:
                    agent.lease = self.lease
                    self._soon(sim, agent, events.LeaseMoved(asked))
                watched = agent.machine.watched
                if watched is not None and self.barrier.get(watched, 0) >= self.job.active:
                    self._soon(sim, agent, events.BarrierPassed(watched))
                if self.permanent_close is not None:
                    self._soon(sim, agent, events.Ended(self.permanent_close))
        elif self.now - agent.answered > TIMEOUTS.coordinator or self.coordinator is None:
            agent.connected = False
            self.tell_agent(sim, agent, events.Disconnected("silent"))
            self._connect(sim, agent)
            return
        self.after(TIMEOUTS.heartbeat, lambda: self._beat(sim, agent, attempt))

    def _soon(self, sim: SimNode, agent: SimAgent, event: events.AgentEvent) -> None:
        self.after(self.random.uniform(0, 0.02), lambda: self.tell_agent(sim, agent, event))

    def _send(self, sim: SimNode, agent: SimAgent, message: messages.ToCoordinator) -> None:
        """In order for each agent; lost when the connection breaks on the way."""
        agent.sent_at = max(agent.sent_at, self.now + self.random.uniform(0, 0.05))
        self._travel(sim, agent, agent.attempt, message)

    def _travel(self, sim: SimNode, agent: SimAgent, attempt: int, message: messages.ToCoordinator) -> None:
        self.after(agent.sent_at - self.now, lambda: self._arrive(sim, agent, attempt, message))

    def _arrive(self, sim: SimNode, agent: SimAgent, attempt: int, message: messages.ToCoordinator) -> None:
        if not sim.cut:
            self.old_words.append(message)
            self.tell_coordinator(events.Received(message))
        elif agent.connected and agent.attempt == attempt:  # a connection that outlives the cut delivers it yet
            agent.sent_at = max(agent.sent_at, self.now + 0.1)
            self._travel(sim, agent, attempt, message)

    def _push(self, infra_rank: int, incarnation: int, message: messages.ToAgent) -> None:
        self.mail.setdefault((infra_rank, incarnation), []).append(message)
        self.old_mail.append((infra_rank, incarnation, message))
        sim = self.nodes[infra_rank]
        if sim.agent is not None and sim.agent.incarnation == incarnation:
            agent = sim.agent
            self.after(self.random.uniform(0, 0.05), lambda: self._deliver(sim, agent))

    def _deliver(self, sim: SimNode, agent: SimAgent) -> None:
        box = self.mail.get((sim.node.infra_rank, agent.incarnation), [])
        while box and agent.alive and agent.connected and self._reaches(sim):
            message = box.pop(0)
            self.tell_agent(sim, agent, events.Mailed(message))

    # -- the coordinator

    def _start_coordinator(self, sim: SimNode) -> None:
        if sim.up:
            self.coordinator = self._make(self.job, self.now)
            self._tick_coordinator()

    def kill_coordinator(self) -> None:
        """SIGKILL to the coordinator's process, and the store with it."""
        if self.coordinator is not None:
            self.coordinator = None
            self.after(0.05, lambda: self.tell_daemon(self.nodes[0], events.ChildExited("coordinator", "killed")))

    def _tick_coordinator(self) -> None:
        if self.coordinator is None:
            return
        if self.now >= self.coordinator_frozen:
            self.lease += 1
            moved = {n for n, count in self.heartbeats.items() if count != self.seen_heartbeats.get(n)}
            self.seen_heartbeats = dict(self.heartbeats)
            self.tell_coordinator(events.Heard(frozenset(moved)))
            if self.permanent_close is not None:
                self.tell_coordinator(events.Ended(self.permanent_close))
            self.tell_coordinator(events.Tick())
        self.after(TIMEOUTS.heartbeat, self._tick_coordinator)

    def tell_coordinator(self, event: events.CoordinatorEvent) -> None:
        """An event for the coordinator; a frozen one hears it when it goes on."""
        if self.coordinator is None:
            return
        if self.now < self.coordinator_frozen:
            if not isinstance(event, events.Tick):
                self.after(self.coordinator_frozen - self.now + 0.001, lambda: self.tell_coordinator(event))
            return
        for action in self.coordinator.handle(event, self.now):
            self._do_coordinator(action)

    def _do_coordinator(self, action: actions.CoordinatorAction) -> None:
        match action:
            case actions.Mail(infra_rank, incarnation, message):
                if isinstance(message, messages.Run) and self.coordinator and self.coordinator.verdict is not None:
                    raise Breach("4: a Run after the verdict")
                self._push(infra_rank, incarnation, message)
            case actions.Conclude(verdict):
                self.close_from_outside(verdict)
                assert self.permanent_close is not None
                self.tell_coordinator(events.Ended(self.permanent_close))
            case actions.Record(verdict):
                if self.recorded and self.recorded[0] != verdict:
                    raise Breach(f"4: {verdict} after {self.recorded[0]}")
                self.recorded = self.recorded or [verdict]
                self.tell_daemon(self.nodes[0], events.Ordered("coordinator", orders.Closed(verdict)))
            case actions.Leave(code, verdict, reason):
                self.tell_daemon(self.nodes[0], events.Ordered("coordinator", orders.Done(code, verdict, reason)))
                self.kill_coordinator()
            case actions.Log(event, fields, _):
                self.note(f"{event} {dict(fields)}")

    closed_at = 0.0

    def close_from_outside(self, verdict: Verdict) -> None:
        """compare_set on permanent_close."""
        if self.permanent_close is None:
            self.permanent_close, self.closed_at = verdict, self.now
            if verdict.outcome is Outcome.SUCCESS and self.coordinator is not None and self.coordinator.cycle:
                self._check_success(self.coordinator.cycle)

    # -- faults

    def freeze_agent(self, sim: SimNode, seconds: float) -> None:
        """SIGSTOP and SIGCONT to the agent."""
        if sim.agent is not None:
            sim.agent.frozen_until = self.now + seconds

    def cut(self, sim: SimNode, seconds: float) -> None:
        """The node's network is gone for a while."""
        sim.cut = True

        def heal() -> None:
            sim.cut = False

        self.after(seconds, heal)

    def repeat_old_messages(self) -> None:
        """Deliver some message of before once more, to whoever lives now (7)."""
        if self.old_mail and self.random.random() < 0.5:
            infra_rank, incarnation, mail = self.random.choice(self.old_mail)
            sim = self.nodes[infra_rank]
            agent = sim.agent
            if agent is not None and agent.incarnation == incarnation and not isinstance(mail, messages.Standby):
                self.tell_agent(sim, agent, events.Mailed(mail))
        elif self.old_words:
            word = self.random.choice(self.old_words)
            if not isinstance(word, messages.Register | messages.WorkersStopped):
                self.tell_coordinator(events.Received(word))

    # -- what must hold

    def _check(self) -> None:
        if self.coordinator is not None and self.coordinator.phase == "running":
            for infra_rank in self.coordinator._pending:
                member = self.coordinator.members[infra_rank]
                if not member.here:
                    raise Breach(f"3: {member.node.name} is active though lost")

    def _check_success(self, cycle: Cycle) -> None:
        if len(self.worked.get(cycle, ())) != self.job.active:
            raise Breach(f"5: success of {cycle}, but only {self.worked.get(cycle)} have succeeded")

    def _check_end(self) -> None:
        codes = {sim.code for sim in self.nodes if sim.code is not None}
        if self.permanent_close is not None and not codes <= {self.permanent_close.exit_code, 75, 130}:
            raise Breach(f"codes {codes} with the verdict {self.permanent_close}")
        if any(sim.workers is not None for sim in self.nodes):
            raise Breach("a worker outlives its daemon")

"""A node: its host, its clock, the daemon with the real machine, and the processes below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.agent import SimAgent
from tests.simulation.coordinator import SimCoordinator
from tests.simulation.launch import HOST
from tests.simulation.network import Channel, Host
from tests.simulation.process import Process
from tests.simulation.words import brief
from tests.simulation.workers import ORPHAN_TIME, SimWorkers

from ft_supervisor.core.daemon.daemon import AGENT
from ft_supervisor.core.protocol import actions, events
from ft_supervisor.core.protocol.actions import DaemonAction
from ft_supervisor.core.protocol.events import (
    ChildExited,
    DaemonEvent,
    Ordered,
    Signalled,
    Terminated,
    Tick,
    VerdictFileFound,
)
from ft_supervisor.core.protocol.health_types import CheckOutcome, Result, Round
from ft_supervisor.core.protocol.messages import ToCoordinator
from ft_supervisor.core.protocol.model import Node, Verdict
from ft_supervisor.core.protocol.orders import Checked, Order, Promise, Sick, SlurmSaid, Terminate

if TYPE_CHECKING:
    from tests.simulation.world import World

DRIFT = 1e-3


class SimDaemon(Process):
    """The simulated process of a daemon: the real machine, and a shell that carries out its actions."""

    events_first = True

    def __init__(self, node: SimNode) -> None:
        super().__init__(node.world, node.beat)
        self.node = node
        self.machine = node.world.machines.daemon(node.world.job, node.node, node.local())

    def begin(self) -> None:
        """Begin, as srun has started the daemon."""
        self._perform(self.machine.start(self.node.local()))
        self.feed(self.node.world.slurmctld.job())
        self.start_beating()

    def feed(self, event: DaemonEvent) -> None:
        """Let the machine handle an event, and carry out its actions. To be called by way of `do`."""
        if self.alive:
            if self.node.world.history is not None and isinstance(event, ChildExited | Signalled | VerdictFileFound):
                self.node.world.note(f"{self.node.name} daemon", f"<- {brief(event)}")
            self._perform(
                self.node.world.checks.step(f"{self.node.name} daemon", self.machine, event, self.node.local())
            )

    def on_beat(self) -> None:
        self.feed(Tick())

    def _perform(self, todo: list[DaemonAction]) -> None:
        node = self.node
        for action in todo:
            if not self.alive:
                return
            if node.world.history is not None:
                node.world.note_action(f"{node.name} daemon", action)
            match action:
                case actions.SpawnAgent(incarnation, memory):
                    node.agent = SimAgent(node, incarnation, memory, self.machine.waited(node.local()))
                case actions.SpawnCoordinator(incarnation, memory):
                    node.coordinator = SimCoordinator(node, incarnation, memory)
                case actions.KillChild(child):
                    node.kill_agent() if child == AGENT else node.kill_coordinator()
                case actions.Tell(Terminate(reason)) if node.agent is not None:
                    node.agent.do(node.agent.feed, Terminated(reason))
                case actions.RunChecks(round_):
                    node.world.after(node.world.between(0.02, 0.3), self._check, round_)
                case actions.Tell(Sick(problem)) if node.agent is not None:
                    node.agent.do(node.agent.feed, events.TurnedUnhealthy(problem))
                case actions.Tell(Checked(cycle, problem)) if node.agent is not None:
                    node.agent.do(node.agent.feed, events.CheckAnswered(cycle, problem))
                case actions.CallSlurm():
                    node.world.after(node.world.between(0.01, 0.5), self._answer)
                case actions.Tell(SlurmSaid() as said, "coordinator") if node.coordinator is not None:
                    node.coordinator.do(node.coordinator.feed, events.SlurmToldUs(said))
                case actions.Tell(Promise(term)) if node.coordinator is not None:
                    node.coordinator.do(node.coordinator.feed, events.Promised(term))
                case actions.Push(host, _, message):
                    there = node.world.nodes[int(host)]
                    Channel(node.world.network, node.host, there.host).send(there.receive, message)
                case actions.CopyVerdict(verdict, shared):
                    node.kept = node.kept or verdict
                    if not shared:
                        continue
                    node.world.checks.verdict(verdict, f"{node.name} daemon writes")
                    if not node.world.files_away:
                        node.world.write_file(verdict, f"{node.name} daemon")
                case actions.LookForVerdict():
                    node.world.look_for_verdict(
                        self, lambda verdict: self.feed(VerdictFileFound(verdict) if verdict else events.NoVerdict())
                    )
                case actions.Leave(code):
                    node.world.checks.daemon_leaves(node, action)
                    node.end(code)
                case _:
                    node.world.slurmctld.perform(self, action)

    def _check(self, round_: Round) -> None:
        result, why = (Result.FAILED, "sick") if self.node.sick else (Result.PASSED, "")
        outcomes = tuple(CheckOutcome(check.name, result, why) for check in round_.checks)
        self.do(self.feed, events.ChecksDone(round_.number, outcomes))

    def _answer(self) -> None:
        self.do(self.feed, events.SlurmAnswered(self.node.world.slurmctld.answer(self.node.rank)))


class SimNode:
    """A node with its clock and its processes. `rank` is its infra_rank."""

    def __init__(self, world: World, node: Node) -> None:
        self.world = world
        self.node = node
        self.rank = node.infra_rank
        self.name = node.name
        self.host = Host(self.rank)
        self.up = True
        self.code: int | None = None
        self.agent: SimAgent | None = None
        self.coordinator: SimCoordinator | None = None
        self.workers: SimWorkers | None = None
        self.parked: SimWorkers | None = None
        """Those that wait for the next cycle."""
        self.kept: Verdict | None = None
        """The verdict in this node's own folder."""
        self.dead = False
        self.frozen = False
        """Whether all its processes stand still, the guard of its workers too."""
        self.thawed_at = 0.0
        self.sick = False
        """Whether its health checks fail."""
        self.squatted_until = 0.0
        """Time until which a stranger's store has this node's first port."""
        self.unable = False
        """Whether it cannot start workers."""
        self._rate = 1.0 + world.between(-DRIFT, DRIFT)
        self._offset = world.between(0.0, 1e6)
        self._frozen_since = 0.0
        self._stood_still = 0.0
        self.beat = world.job.timeouts.heartbeat / self._rate
        self.daemon = SimDaemon(self)
        world.after(world.between(0.0, 2.0), self.daemon.do, self.daemon.begin)

    def local(self) -> float:
        """Return the time of this node's monotonic clock, in seconds."""
        return self._offset + self._rate * self.world.now

    @property
    def habit(self) -> str:
        """What its workers do when they are asked to leave their function; "" where the plan's have none."""
        plan = self.world.plan
        return dict(plan.habits).get(self.rank, "parks") if plan.in_process else ""

    def note(self, what: object) -> None:
        """Add a line to the history."""
        self.world.note(self.name, what)

    # -- children

    def tell_daemon(self, child: str, order: Order) -> None:
        """Send an order to the daemon over the child's link."""
        self.daemon.do(self.daemon.feed, Ordered(child, order))

    def kill_agent(self) -> None:
        """Kill the agent and all processes below it. This is also the end of an agent that leaves."""
        agent = self.agent
        if agent is not None and agent.alive:
            agent.die()
            self.world.after(ORPHAN_TIME + 0.05, self.daemon.do, self.daemon.feed, ChildExited("agent", "gone"))

    def kill_coordinator(self) -> None:
        """Kill the coordinator. This is also the end of a coordinator that leaves."""
        coordinator = self.coordinator
        if coordinator is not None and coordinator.alive:
            coordinator.die()
            self.world.after(0.03, self.daemon.do, self.daemon.feed, ChildExited("coordinator", "gone"))

    def receive(self, message: ToCoordinator) -> None:
        """Put a message that has come to this host into the inbox of the coordinator's store, if one listens."""
        coordinator = self.coordinator
        if coordinator is not None and coordinator.alive and coordinator.listening:
            coordinator.do(coordinator.store.push, message)

    # -- the whole node

    def end(self, code: int | None) -> None:
        """End the daemon and all its processes. `code`: its exit code, None if it was killed."""
        if not self.up:
            return
        self.up, self.code, self.daemon.alive = False, code, False
        for process in (self.agent, self.coordinator):
            if process is not None and process.alive:
                process.die()
        if code is not None:
            self.kill_workers()  # the daemon's last sweep
        if self.world.launch is not None:
            self.world.launch.srun.task_ended(self, code, dead=self.dead)

    def power_off(self) -> None:
        """End the whole machine, its processes and its messages that are not sent yet."""
        self.dead = True
        self.world.network.power_off(self.host)
        if self.world.launch is not None and self.rank == HOST:
            self.world.launch.die()
        self.end(None)
        self.kill_workers()

    def kill_workers(self) -> None:
        """End all workers at once, parked ones too."""
        for workers in (self.workers, self.parked):
            if workers is not None:
                workers.gone()

    def freeze(self, seconds: float) -> None:
        """Send SIGSTOP to all processes, workers included, and SIGCONT after `seconds`."""
        if not self.frozen:
            self.frozen, self._frozen_since = True, self.world.now
            self.world.after(seconds, self._thaw)
        launch = self.world.launch if self.rank == HOST else None
        for process in (self.daemon, self.agent, self.coordinator, launch):
            if process is not None and process.alive:
                process.freeze(seconds + self.world.between(0.0, 0.02))

    def _thaw(self) -> None:
        self.frozen = False
        self.thawed_at = self.world.now
        self._stood_still += self.world.now - self._frozen_since
        self.note("goes on")

    def stood_still(self) -> float:
        """Return for how many seconds this node's workers have stood still so far."""
        return self._stood_still + (self.world.now - self._frozen_since if self.frozen else 0.0)

"""The simulated process of an agent: the real machine, and a shell that carries out its actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.clockwork import Breach
from tests.simulation.guard import SimGuard
from tests.simulation.process import Process
from tests.simulation.wire import Wire
from tests.simulation.words import brief
from tests.simulation.workers import SimWorkers

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.agent.node_workers import NodeWorkers, WorkersState
from ft_supervisor.core.protocol import actions
from ft_supervisor.core.protocol.actions import AgentAction
from ft_supervisor.core.protocol.events import AgentEvent, EvidenceTaken, Looked, Tick, WorkersSeen
from ft_supervisor.core.protocol.evidence import TAKING, Collective, Digest, EvidenceSource
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Cycle, Memory
from ft_supervisor.core.protocol.orders import Done
from ft_supervisor.core.transitions import InvalidState

if TYPE_CHECKING:
    from tests.simulation.node import SimNode
    from tests.simulation.world import World

IMPORTS = (0.2, 2.5)
"""Seconds from the agent's exec until it is there."""


class SimAgent(Process):
    """One incarnation of a node's agent."""

    def __init__(self, node: SimNode, incarnation: int, memory: Memory, waited: float) -> None:
        world = node.world
        super().__init__(world, node.beat)
        self.world: World = world
        self.node: SimNode = node
        self.beat: float = node.beat
        self.incarnation: int = incarnation
        self.wire: Wire | None = None
        self.machine: AgentMachine | None = None
        self.crew = NodeWorkers(world.job.timeouts.quiesce)
        self._guard = SimGuard(self)
        self._dials = 0
        self._memory = memory
        self._waited = waited
        world.after(world.between(*IMPORTS), self.do, self._begin)

    @property
    def watched(self) -> Cycle | None:
        """The cycle whose exit barrier the machine watches, if there is one."""
        assert self.machine is not None
        return self.machine.watched

    def feed(self, event: AgentEvent) -> None:
        """Let the machine handle an event, and carry out its actions. To be called by way of `do`."""
        if self.alive and self.machine is not None:
            if self.world.history is not None and not isinstance(event, Tick | Looked):
                self.world.note(f"{self.node.name} agent", f"<- {brief(event)}")
            self._perform(self._handle(self.machine, event))

    def _handle(self, machine: AgentMachine, event: AgentEvent) -> list[AgentAction]:
        try:
            todo = machine.handle(event, self.node.local())
            machine.validate()
        except InvalidState as error:
            raise Breach("state", f"{self.node.name}: {error}") from None
        return todo

    def die(self) -> None:
        """End the process. Its workers end soon after it."""
        self.alive = False
        if self.wire is not None:
            self.wire.abandoned = True
        for workers in (self.node.workers, self.node.parked):
            if workers is not None:
                workers.orphaned()

    def on_beat(self) -> None:
        if self.wire is not None:
            self.wire.judge()
        self.feed(Tick())
        if self.alive and self.machine is not None:
            self._stand_by(self.machine)

    def _stand_by(self, machine: AgentMachine) -> None:
        """Run the script up to its function on a spare, if nothing is there."""
        node, known = self.node, machine.watched
        busy = node.workers is not None or node.parked is not None or self.crew.state is not WorkersState.NONE
        if busy or known is None or not machine.spare or node.habit in ("", "plain") or node.unable:
            return
        self.world.checks.stands_by(node, machine.memory)
        SimWorkers(self, None, known).wait()

    def _begin(self) -> None:
        node, now = self.node, self.node.local()
        self.machine = self.world.machines.agent(
            self.world.job, node.node, self.incarnation, self._memory, now, waited=self._waited
        )
        self._perform(self.machine.start(now))
        self.start_beating()

    def _perform(self, todo: list[AgentAction]) -> None:
        assert self.machine is not None
        self._guard.set(self.machine.guard_at)
        for action in todo:
            if not self.alive:
                return
            if self.world.history is not None:
                self.world.note_action(f"{self.node.name} agent", action)
            match action:
                case actions.Announce(fact):
                    self.world.checks.announced(fact)
                case actions.Tell(order):
                    self.node.tell_daemon("agent", order)
                case actions.Send(message):
                    if self.wire is not None:
                        self.wire.send(message)
                case actions.Dial(candidates):
                    self._dial(candidates)
                case actions.Start(run):
                    self._start(run)
                case actions.StopWorkers():
                    self._stop(action)
                case actions.ReleaseWorkers(cycle, functions):
                    if self.node.workers is not None and self.node.workers.cycle == cycle:
                        self.node.workers.release(functions)
                case actions.LookAtWorkers():
                    self.clock.after(self.clock.between(0.001, 0.2), self.do, self._look_at, action)
                case actions.GatherEvidence():
                    self.clock.after(self.clock.between(0.01, TAKING), self.do, self._evidence, action)
                case actions.DropParked():
                    self._drop_parked()
                case actions.EnterBarrier(cycle, world_size):
                    if self.wire is not None:
                        self.wire.enter_barrier(cycle, world_size)
                case actions.Leave(code, verdict, reason):
                    if self.wire is not None:
                        self.wire.flush()
                    self.world.checks.agent_leaves(self.node, action)
                    self.node.tell_daemon("agent", Done(code, verdict, reason))
                    self.node.kill_agent()

    def _dial(self, candidates: tuple[int, ...]) -> None:
        if self.wire is not None:
            self.wire.abandoned = True
        self._dials += 1
        self.wire = Wire(self, self._dials, candidates)

    def _start(self, run: Run) -> None:
        self.world.checks.start(self.node, run)
        unable = self.node.unable
        again = self.crew.start(run.cycle, fresh=run.fresh or unable)
        parked, self.node.parked = self.node.parked, None
        if parked is not None and not again:  # it runs nothing, so that nothing waits for its end
            parked.kill()
        workers = SimWorkers(self, run, parked.born if parked is not None and again else run.cycle)
        if not unable or self.world.between(0.0, 1.0) < 0.5:  # else none of the workers runs by then
            self.node.workers = workers
            if not again:
                self.crew.started([0])
        if unable:
            workers.unable("read-only")
        else:
            self.world.checks.began(self.node, run, workers.born)
            workers.start()
            self.world.moment("running", self.node.rank)

    def _look_at(self, look: actions.LookAtWorkers) -> None:
        """Tell what the workers of this cycle have done, if they are still there."""
        workers = self.node.workers
        if workers is not None and workers.cycle == look.cycle and not self.node.frozen:
            activity, stack = workers.activity()
            self.feed(WorkersSeen(look.cycle, (activity,), ((0, stack),) if look.stacks else ()))

    def _evidence(self, taking: actions.GatherEvidence) -> None:
        """Tell which collective the workers have entered, if they are still there. In some jobs that is not known."""
        workers = self.node.workers
        digests: tuple[Digest, ...] = ()
        if workers is not None and workers.cycle == taking.cycle:
            entered = Collective("all", 6 if workers.hangs else 7, "all_reduce")
            known = () if self.world.plan.seed % 3 == 0 else (entered,)
            digests = (Digest(0, source=EvidenceSource.WORKER_SERVER, collectives=known),)
        self.feed(EvidenceTaken(taking.cycle, taking.number, digests))

    def _drop_parked(self) -> None:
        self.crew.drop_parked()
        parked = self.node.parked
        if parked is not None and self.crew.state is WorkersState.NONE and not self.crew.parked:
            self.node.parked = None
            parked.kill()
        self.world.after(0.001, self.do, self.poll)

    def _stop(self, stop: actions.StopWorkers) -> None:
        workers = self.node.workers
        if workers is not None and workers.cycle == stop.cycle:
            self.world.checks.stop(self.node, stop.cycle)
            workers.stop(stop)
        else:
            self.crew.stop(stop.cycle, stop.grace, "", self.clock.now, park=stop.park)
            self.world.after(0.01, self.do, self.poll)

    def poll(self) -> None:
        """Report what has become of the workers; kill what is to be killed, and all that is left but parked workers."""
        if (event := self.crew.report()) is not None:
            self.feed(event)
            self.poll()
            return
        now, mine = (
            self.clock.now,
            [each for each in (self.node.workers, self.node.parked) if each and each.agent is self],
        )
        if not mine and self.crew.state is WorkersState.STOPPING:  # the exit may wait in a frozen agent
            self.crew.exited(0)
        stays = bool(self.crew.parked)
        sweeps = self.crew.wants_sweep(now)
        if (sweeps or self.crew.doomed(now)) and mine and not stays:
            for workers in mine:
                workers.kill()
        elif sweeps:
            if self.crew.state is WorkersState.STOPPING and stays and self.node.workers is not None:
                self.node.workers.part()
            self.feed(self.crew.swept(9))

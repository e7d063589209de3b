"""The simulated workers of one node, all of them as one: they run, finish together or fail, and are stopped.

Workers that have failed still count as running until they are gone, as processes that they started may go on. The real
machine (core/agent/node_workers.py) decides which events the agent gets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ft_supervisor.core.agent.node_workers import NodeWorkers, WorkersState
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import KILL_BOUND, Cycle, Failure
from ft_supervisor.core.protocol.ranks import parse_ranks

if TYPE_CHECKING:
    from tests.simulation.agent import SimAgent

TERM_TIME = 0.8
"""Seconds that workers which heed SIGTERM need, at most."""
KILL_TIME = 0.9 * KILL_BOUND
"""Seconds from SIGKILL until nothing is left, at most."""
ORPHAN_TIME = 0.3
"""Seconds from their agent's death until nothing is left, at most: the kernel signals them."""


@dataclass(eq=False)
class SimWorkers:
    """Workers of `run` under `agent`. `alive` until nothing is left of them."""

    agent: SimAgent
    run: Run
    alive: bool = True
    over: bool = False
    """Whether they have failed, or are being stopped, so that they cannot succeed any more."""
    machine: NodeWorkers = field(default_factory=NodeWorkers)
    _lag: float = 0.0

    @property
    def cycle(self) -> Cycle:
        """The cycle of these workers."""
        return self.run.cycle

    def start(self) -> None:
        """Begin to work. All workers of a cycle take about as long."""
        self.machine.start(self.cycle)
        agent, plan, clock = self.agent, self.agent.world.plan, self.agent.clock
        self._lag = agent.node.stood_still()
        if (agent.node.rank, self.cycle.n) in plan.fails:
            clock.after(clock.between(0.0, plan.work), self.fail, Failure(agent.node.rank, 0, exit_code=1))
        else:
            clock.after(plan.work + clock.between(0.0, 0.5), self._finish)

    def fail(self, failure: Failure) -> None:
        """Let one of them fail, and report it to the agent."""
        if self.alive and not self.over:
            self.over = True
            self.agent.node.note(f"workers of {self.cycle} fail: {failure}")
            self.machine.fail(failure)
            self._report()

    def unable(self, reason: str) -> None:
        """Report that the node cannot start them all. Some may run."""
        self.over = True
        self.machine.start(self.cycle)
        self.machine.unable(reason)
        self.agent.world.after(0.01, self._report)

    def _report(self) -> None:
        if (event := self.machine.report()) is not None:
            self.agent.do(self.agent.feed, event)

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds; both come from the agent."""
        self.over = True
        clock, former = self.agent.clock, self.machine.deadline
        signalled = self.machine.stop(self.cycle, grace, "SIGTERM", clock.now)
        if signalled and self.agent.node.rank not in self.agent.world.plan.stubborn:
            clock.after(clock.between(0.0, TERM_TIME), self._gone_if_thawed)
        if former is None or self.machine.deadline != former:
            clock.after(grace, self.agent.do, self._kill)

    def _kill(self) -> None:
        self.agent.clock.after(self.agent.clock.between(0.0, KILL_TIME), self.gone)

    def orphaned(self) -> None:
        """End soon, as the agent is dead."""
        self.over = True
        self.agent.clock.after(self.agent.clock.between(0.0, ORPHAN_TIME), self.gone)

    def strike(self) -> None:
        """Send SIGKILL from the guard, in any state of the agent."""
        self.over = True
        self.agent.clock.after(self.agent.clock.between(0.0, KILL_TIME), self._struck)

    def _struck(self) -> None:
        if self.machine.state is WorkersState.STOPPING:  # the agent wants them to end as well, and waits for it
            self.gone()
        elif self.alive:
            self._die()
            self.machine.fail(Failure(self.agent.node.rank, 0, signal="SIGKILL"))
            self._report()
            self.agent.do(self.agent.feed, self.machine.swept(9))  # as all have exited: that is no success

    def gone(self) -> None:
        """End all of them. The agent gets an event if it lives and has stopped them."""
        if self.alive:
            self._die()
            if self.machine.state is WorkersState.STOPPING:
                self.agent.do(self.agent.feed, self.machine.swept(9))

    def _die(self) -> None:
        self.alive = False
        node = self.agent.node
        if node.workers is self:
            node.workers = None
        node.note(f"no worker of {self.cycle} is left")
        self._miss(node.rank)

    def _gone_if_thawed(self) -> None:
        if self.agent.node.frozen:  # SIGTERM waits for SIGCONT
            self.agent.clock.after(0.1, self._gone_if_thawed)
        else:
            self.gone()

    def _finish(self) -> None:
        node = self.agent.node
        lag, self._lag = node.stood_still() - self._lag, node.stood_still()
        if not self.alive or self.over:
            return
        if lag > 0.0 or node.frozen:
            self.agent.clock.after(max(lag, 0.1), self._finish)
        elif self._complete():
            self.alive, node.workers = False, None
            self.agent.world.checks.worked(self.cycle, node.rank)
            node.note(f"workers of {self.cycle} succeed")
            self.agent.do(self.agent.feed, self.machine.swept(9))
            self.agent.world.moment("succeeding", node.rank)
        elif self.agent.world.plan.peers == "hang":
            self.agent.clock.after(0.5, self._finish)
        else:
            self.fail(Failure(node.rank, 0, signal="SIGABRT"))

    def _complete(self) -> bool:
        """Whether all workers of the world run, or have succeeded."""
        if self.agent.world.plan.peers == "independent":
            return True
        done = self.agent.world.checks.succeeded(self.cycle)
        for rank in parse_ranks(self.run.group):
            workers = self.agent.world.nodes[rank].workers
            there = workers is not None and workers.cycle == self.cycle and not workers.over
            if not there and rank not in done:
                return False
        return True

    def _miss(self, rank: int) -> None:
        """Let the other workers of the world fail, if the plan's workers crash when a peer is gone."""
        world = self.agent.world
        if world.plan.peers != "crash" or rank in world.checks.succeeded(self.cycle):
            return
        for other in world.nodes:
            if other.workers is not None and other.workers.cycle == self.cycle and not other.workers.over:
                failure = Failure(other.rank, 0, exit_code=1, message="a peer is gone")
                self.agent.clock.after(self.agent.clock.between(0.05, 1.0), other.workers.fail, failure)

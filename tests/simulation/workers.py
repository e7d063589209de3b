"""The simulated workers of one node, all of them as one: they run, finish together or fail, and are stopped.

Workers that have failed still count as running until they are gone, as processes that they started may go on. The real
machine (core/agent/node_workers.py), which belongs to the agent, decides which events the agent gets and who is killed.

Where a plan restarts in process the workers call a restartable function, do deeds (write checkpoints) all the time, and
react to the request to leave the function according to their node's habit (plan.HABITS). The object of parked workers
belongs to the node until their process dies or is called again; then it gets a new object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.simulation.plan import Plan

from ft_supervisor.core.agent.node_workers import WorkersState
from ft_supervisor.core.protocol.actions import StopWorkers
from ft_supervisor.core.protocol.activity import Activity
from ft_supervisor.core.protocol.events import Beat, WorkerProgressed
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
PARK_TIME = 2.0
"""Seconds that workers which can be parked need to leave their function, at most."""
PARKED_LIFE = 8.0
"""Seconds after which parked workers that do not stay die, at most."""
DEED = 0.2
"""Seconds between two deeds."""
TRACES = ("output", "written", "read", "below_written", "below_cpu", "sequence", "stack")
"""What shows that workers do something: one of the totals, or a stack that changes while they use CPU time."""


def trace(plan: Plan) -> str:
    """Return which of TRACES the workers of this job leave."""
    return TRACES[plan.seed // 2 % len(TRACES)]


@dataclass(eq=False)
class SimWorkers:
    """Workers of `run` under `agent`, None for those of a spare. `alive` until nothing is left of them."""

    agent: SimAgent
    run: Run | None
    born: Cycle
    """The cycle for which their processes were started; of a spare's the one that its node knew of."""
    alive: bool = True
    over: bool = False
    """Whether they have failed, or are being stopped, so that they cannot succeed any more."""
    waits: bool = False
    """Whether their function has returned, and waits for those of all other nodes."""
    idle: bool = False
    """Whether they have left their function: they do nothing any more."""
    child: bool = False
    """Whether a process that they have started goes on in spite of their report."""
    hangs: bool = False
    """Whether it hangs: all others have entered a collective that it has not."""
    _still_since: float | None = None
    """Since when they do nothing; None while they work."""
    _last_still: tuple[float, float] = (0.0, 0.0)
    _moves_since: float = 0.0
    _worked: float = 0.0
    _called: bool = False
    _killed: bool = False
    _lag: float = 0.0

    @property
    def cycle(self) -> Cycle:
        """The cycle of these workers."""
        return self.born if self.run is None else self.run.cycle

    @property
    def _habit(self) -> str:
        return self.agent.node.habit

    # -- work

    def start(self) -> None:
        """Begin to work. All workers of a cycle take about as long."""
        agent, plan, clock = self.agent, self.agent.world.plan, self.agent.clock
        self._moves_since = agent.world.now
        self._lag = agent.node.stood_still()
        if (agent.node.rank, self.cycle.n) in plan.fails:
            clock.after(clock.between(0.0, plan.work), self.fail, Failure(agent.node.rank, 0, exit_code=1))
        else:
            clock.after(plan.work + clock.between(0.0, 0.5), self._finish)
        if self._habit:
            clock.after(clock.between(0.0, 0.5 * plan.work), self._progress)
            clock.after(DEED, self._do_deed)
            if self._habit != "plain":
                self._called = True
                agent.crew.restartable(0)

    def _progress(self) -> None:
        if self.alive and not self.over and not self.agent.node.frozen:
            self.agent.world.checks.progressed.add(self.cycle)
            self.agent.do(self.agent.feed, WorkerProgressed(self.cycle))

    def _do_deed(self) -> None:
        if self.alive and (self.child or not self.idle):
            if not self.agent.node.frozen:
                self.agent.world.checks.deed(self.agent.node, self.cycle)
            self.agent.clock.after(DEED, self._do_deed)

    def fail(self, failure: Failure) -> None:
        """Let one of them fail, and report it to the agent. In a restartable function it often raises, and lives."""
        if not self.alive or self.over:
            return
        self.over = True
        self.agent.world.checks.crashed(self.cycle, self.agent.node.rank, failure.message)
        if self._called and failure.exit_code is not None and self.agent.clock.random.random() < 0.7:
            failure = replace(failure, exit_code=None, exception="RuntimeError", lives=True)
            self._leave()
        self.agent.node.note(f"workers of {self.cycle} fail: {failure}")
        self.agent.do(self._fail, failure)

    def hang(self) -> None:
        """Let one of them do nothing from now on, which the agent notices."""
        if self.alive and not self.over:
            self.over = self.hangs = True
            self._rest()
            self.agent.world.checks.hangs.hangs(self, noticed=True)
            self.agent.do(self.agent.feed, Beat(0, "trigger"))

    # -- doing nothing, which only shows from outside

    def stand_still(self, seconds: float) -> None:
        """Let them do nothing for so long, 0 for ever; those that wait for them do nothing then, too."""
        if not self.alive or self.over:
            return
        self.hangs = True
        self.agent.world.checks.hangs.hangs(self, noticed=False)
        self._pause(seconds)
        for node in self.agent.world.nodes:
            other = node.workers
            waits = other is not None and other is not self and other.cycle == self.cycle and not other.over
            if waits and other is not None and self.agent.world.plan.peers != "independent":
                self.agent.clock.after(self.agent.clock.between(0.0, 1.0), other._pause, seconds)

    def _pause(self, seconds: float) -> None:
        self._rest()
        if seconds:
            self.agent.clock.after(seconds, self._go_on)
        else:
            self.over = True

    def _rest(self) -> None:
        if self._still_since is None:
            self._worked += self.agent.world.now - self._moves_since
            self._still_since = self.agent.world.now

    def _go_on(self) -> None:
        if self._still_since is not None and not self.over:
            self._last_still = self._still_since, self.agent.world.now
            self._still_since, self._moves_since, self.hangs = None, self.agent.world.now, False

    def stood_still(self) -> tuple[float, float]:
        """Return for how long they do nothing, or last did, and how long ago that ended, in seconds."""
        now = self.agent.world.now
        if self._still_since is not None:
            return now - self._still_since, 0.0
        start, end = self._last_still
        return end - start, now - end

    def activity(self) -> tuple[Activity, str]:
        """Return what can be seen of them from outside, and their stack. Work shows in one of several ways; some spin
        where they wait."""
        world, rank = self.agent.world, self.agent.node.rank
        worked = self._worked + (0.0 if self._still_since is not None else world.now - self._moves_since)
        stack = "waits" if self._still_since is not None else f"works {worked}"
        if (shown := trace(world.plan)) == "stack":
            return Activity(0, cpu=world.now), stack
        total: Any = worked if shown == "below_cpu" else int(worked * 1e6)
        return replace(Activity(0, cpu=world.now if rank % 2 else worked), **{shown: total}), stack

    def _fail(self, failure: Failure) -> None:
        if self._called and not failure.lives:
            self.agent.crew.exited(0)
        self.agent.crew.fail(failure)
        self.agent.poll()

    def unable(self, reason: str) -> None:
        """Report that the node cannot start them all. Some may run."""
        self.over = True
        self.agent.crew.unable(reason)
        self.agent.world.after(0.01, self.agent.do, self.agent.poll)

    def _finish(self) -> None:
        node = self.agent.node
        lag, self._lag = node.stood_still() - self._lag, node.stood_still()
        if not self.alive or self.over:
            return
        if lag > 0.0 or node.frozen:
            self.agent.clock.after(max(lag, 0.1), self._finish)
        elif self._still_since is not None:
            self.agent.clock.after(0.5, self._finish)
        elif not self._complete():
            if self.agent.world.plan.peers == "hang":
                self.agent.clock.after(0.5, self._finish)
            else:
                self.fail(Failure(node.rank, 0, signal="SIGABRT"))
        elif self._called:
            self.waits = True
            self._rest()
            self.agent.world.checks.returned(self.cycle, node.rank)
            self.agent.do(self._return)
            self.agent.world.moment("returning", node.rank)
        else:
            self._exit()

    def _return(self) -> None:
        self.agent.crew.returned(0)
        self.agent.poll()

    def release(self, functions: int) -> None:
        """Let those return whose function waits; they exit soon."""
        if self.agent.crew.release(functions):
            self.agent.world.checks.released(self.agent.node, self.cycle)
            self.agent.clock.after(self.agent.clock.between(0.0, 0.1), self._exit)

    def _exit(self) -> None:
        node = self.agent.node
        if not self.alive or self.over:
            return
        if node.frozen:
            self.agent.clock.after(0.1, self._exit)
            return
        self.alive, node.workers = False, None
        self.agent.world.checks.progressed.add(self.cycle)
        self.agent.world.checks.worked(self.cycle, node.rank)
        node.note(f"workers of {self.cycle} succeed")
        self.agent.do(self._reap)
        self.agent.world.moment("succeeding", node.rank)

    def _complete(self) -> bool:
        """Whether all workers of the world run, or have succeeded."""
        if self.agent.world.plan.peers == "independent":
            return True
        done = self.agent.world.checks.succeeded(self.cycle)
        assert self.run is not None
        for rank in parse_ranks(self.run.group):
            workers = self.agent.world.nodes[rank].workers
            there = workers is not None and workers.cycle == self.cycle and not workers.over
            if not there and rank not in done:
                return False
        return True

    # -- their end

    def stop(self, stop: StopWorkers) -> None:
        """Send SIGTERM, or ask them to leave their function; SIGKILL comes later. All come from the agent."""
        self.over = True
        agent, clock = self.agent, self.agent.clock
        orders = agent.crew.stop(self.cycle, stop.grace, "SIGTERM", clock.now, park=stop.park)
        if orders.signalled and agent.node.rank not in agent.world.plan.stubborn:
            clock.after(clock.between(0.0, TERM_TIME), self._gone_if_thawed)
        if orders.aborted:
            self._leave()
        if (deadline := agent.crew.deadline) is not None:
            clock.after(max(0.0, deadline - clock.now) + 1e-6, agent.do, agent.poll)
        agent.world.after(0.001, agent.do, agent.poll)

    def _leave(self) -> None:
        if self._habit != "never":
            self.agent.clock.after(self.agent.clock.between(0.0, PARK_TIME), self._quiesce)

    def _quiesce(self) -> None:
        node = self.agent.node
        if node.frozen:
            self.agent.clock.after(0.1, self._quiesce)
        elif self.alive and not self.idle:
            self.idle, self.child = True, self._habit == "lies"
            node.note(f"workers of {self.cycle} leave their function")
            self._miss(node.rank)
            self.agent.do(self._look)

    def _look(self) -> None:
        """Let the agent look for itself whether something is left, and believe that they are parked if not."""
        if self.alive and self.agent.node.workers is self:
            self.agent.crew.quiesced(0, "a child lives" if self.child else "")
            self.agent.crew.park(0)
            self.agent.poll()

    def wait(self) -> None:
        """Wait in the function for the spare's first cycle."""
        self.agent.crew.wait(0)
        self.idle = True
        self.part()

    def part(self) -> None:
        """Wait for the next cycle, as the agent takes them for parked."""
        node = self.agent.node
        node.workers, node.parked = None, self
        if self._habit == "dies":
            self.agent.clock.after(self.agent.clock.between(0.0, PARKED_LIFE), self._die_parked)

    def _die_parked(self) -> None:
        if self.agent.node.parked is self:
            self.gone()

    def kill(self) -> None:
        """Send SIGKILL from the agent, to them and to all that they have started."""
        if not self._killed:
            self._killed = True
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
        stopping = self.agent.crew.state is WorkersState.STOPPING  # the agent wants them to end as well
        if self.alive and not stopping and self.agent.node.workers is self:
            self._die()
            self.agent.do(self._report_strike)
        else:
            self.gone()

    def _report_strike(self) -> None:
        if self.agent.crew.exited(0):
            self.agent.crew.fail(Failure(self.agent.node.rank, 0, signal="SIGKILL"))
        self.agent.poll()

    def gone(self) -> None:
        """End all of them. The agent gets an event if it lives and has stopped them."""
        if self.alive:
            node = self.agent.node
            known = self in (node.workers, node.parked)
            self._die()
            if known:
                self.agent.do(self._reap)

    def _reap(self) -> None:
        self.agent.crew.exited(0)
        self.agent.poll()

    def _die(self) -> None:
        self.alive = False
        node = self.agent.node
        if node.workers is self:
            node.workers = None
        if node.parked is self:
            node.parked = None
        node.note(f"no worker of {self.cycle} is left")
        self._miss(node.rank)

    def _gone_if_thawed(self) -> None:
        if self.agent.node.frozen:  # SIGTERM waits for SIGCONT
            self.agent.clock.after(0.1, self._gone_if_thawed)
        else:
            self.gone()

    def _miss(self, rank: int) -> None:
        """Let the other workers of the world fail, if the plan's workers crash when a peer is gone."""
        world = self.agent.world
        if self.run is None or world.plan.peers != "crash" or rank in world.checks.succeeded(self.cycle):
            return
        for node in world.nodes:
            other = node.workers
            if other is not None and other.cycle == self.cycle and not other.over and not other.waits:
                failure = Failure(node.rank, 0, exit_code=1, message="a peer is gone")
                self.agent.clock.after(self.agent.clock.between(0.05, 1.0), other.fail, failure)

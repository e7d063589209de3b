"""A whole job in one thread, from a plan: the real machines in a simulated world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.checks import Checks
from tests.simulation.clockwork import Breach, Clockwork
from tests.simulation.coordinator import FILE_TIME
from tests.simulation.injector import Injector
from tests.simulation.launch import SimLaunch
from tests.simulation.network import Network
from tests.simulation.node import SimNode
from tests.simulation.plan import Plan
from tests.simulation.process import Process
from tests.simulation.settings import AFTER, PAUSE, settings
from tests.simulation.slurmctld import Slurmctld
from tests.simulation.words import brief

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.launch.launch import LaunchMachine
from ft_supervisor.core.protocol import actions, orders
from ft_supervisor.core.protocol.messages import ToAgent
from ft_supervisor.core.protocol.model import KILL_BOUND, Job, Node, Timeouts, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision, SlurmSaid

TIMEOUTS = Timeouts(quiesce=4.0, stop_grace=5.0, join=30.0, exit_barrier=20.0, takeover=20.0)


LAST_DEED = 150.0
"""Seconds for a daemon's request to a slurmctld that has given the batch host up, or cannot be reached."""


@dataclass
class Slurm:
    """The state of slurmctld. `end_at`: when it ends the job, in the world's seconds."""

    decision: SlurmDecision = SlurmDecision.NOTHING
    end_at: float | None = None
    draining: frozenset[int] = frozenset()

    def answer(self, now: float) -> SlurmSaid:
        """Return Slurm's answer at `now`."""
        end_in = None if self.end_at is None else self.end_at - now
        return SlurmSaid(self.decision, end_in, None if end_in is None else 1000.0, tuple(sorted(self.draining)))


@dataclass(frozen=True)
class Machines:
    """The classes of the machines that run."""

    coordinator: type[CoordinatorMachine] = CoordinatorMachine
    agent: type[AgentMachine] = AgentMachine
    daemon: type[DaemonMachine] = DaemonMachine
    launch: type[LaunchMachine] = LaunchMachine


def end_bound(plan: Plan) -> float:
    """Return the seconds after which no daemon of this job can be left, with any faults of the plan (invariant 6)."""
    t = TIMEOUTS
    disturbed = max((f.at + f.seconds for f in plan.faults if not f.moment), default=0.0)
    disturbed += sum(f.at + f.seconds for f in plan.faults if f.moment)
    stopping = (t.quiesce if plan.in_process else t.restart_grace) + KILL_BOUND + t.node_lost + 10.0
    cycle = plan.work + 1.0 + t.node_lost + stopping + t.node_lost
    cycles = (plan.restarts + plan.nodes + 1) * cycle
    if plan.policy == "wait":
        cycle += t.join
    if plan.policy == "pause":
        cycle += 3 * PAUSE
    if plan.auto:
        cycles += (plan.restarts + plan.nodes + 1) * (AFTER + 10.0)
    slurm = 0.0 if plan.slurm == "lives" else LAST_DEED
    return slurm + disturbed + t.join + cycles + t.takeover + t.stop_grace + t.close_grace + KILL_BOUND + 30.0


class World(Clockwork):
    """The job, its nodes and processes. `history`: whether to keep lines for people, which costs time."""

    def __init__(self, plan: Plan, machines: Machines | None = None, *, history: bool = False) -> None:
        super().__init__(plan.seed)
        self.plan = plan
        self.machines = machines or Machines()
        self.history = [] if history else None
        names = tuple(f"n{rank}" for rank in range(plan.nodes))
        candidates = plan.candidates
        if not isinstance(candidates, int):
            candidates = tuple(rank for rank in candidates if rank < plan.nodes) or 3
        self.job = Job(
            run_id="1.0.0",
            nodes=names,
            hosts=names,
            ports=(1,),
            run_folder="/r",
            local_folder="/l",
            active=min(plan.active, plan.nodes),
            per_node=1,
            command=("x",),
            timeouts=TIMEOUTS,
            candidates=candidates,
            settings=settings(plan, TIMEOUTS.stop_grace),
        )
        self.slurm = Slurm()
        self.slurmctld = Slurmctld(self)
        self.network = Network(self, plan.slow)
        self.checks = Checks(self)
        self.file: Verdict | None = None
        self.files_away = 0
        self.old_mail: list[tuple[tuple[int, int, int], ToAgent]] = []
        self.nodes = [SimNode(self, Node(rank, name, name)) for rank, name in enumerate(names)]
        self.launch = SimLaunch(self) if plan.launch else None
        self._injector = Injector(self, plan.faults)

    def run(self) -> None:
        """Run until every daemon and `launch` have left. Raises Breach."""
        limit = end_bound(self.plan)
        while any(node.up for node in self.nodes) or (self.launch is not None and self.launch.alive):
            if self.now > limit and any(node.up for node in self.nodes):
                left = [node.name for node in self.nodes if node.up]
                raise Breach("6", f"after {self.now:.0f} s {left} are still there")
            self.step()
        self.checks.end()

    # -- faults

    def moment(self, name: str, actor: int) -> None:
        """Start the faults that are aimed at this moment. `actor`: the node at which it happens."""
        self._injector.moment(name, actor)

    # -- files

    def write_file(self, verdict: Verdict, who: str) -> Verdict:
        """Write the verdict's file unless it exists, as link(2) does, and return its content."""
        if self.file is None:
            self.file = verdict
            self.note(who, f"writes the file: {verdict}")
        return self.file

    def look_for_verdict(self, process: Process, found: Callable[[Verdict | None], None]) -> None:
        """Read the verdict's file later, and call `found` with it; never if the file system hangs at that time."""
        self.after(self.between(*FILE_TIME), process.do, self._look, found)

    def _look(self, found: Callable[[Verdict | None], None]) -> None:
        if not self.files_away:
            found(self.file)

    # -- small things

    def mailed(self, key: tuple[int, int, int], message: ToAgent) -> None:
        """Keep a piece of mail that was sent; it may be repeated later."""
        self.old_mail.append((key, message))

    def note_action(self, who: str, action: object) -> None:
        """Add an action to the history, unless it is one of every heartbeat."""
        usual = isinstance(action, actions.Pulse) or (
            isinstance(action, actions.Tell) and isinstance(action.order, orders.Alive)
        )
        if not usual:
            self.note(who, brief(action) if isinstance(action, actions.Announce) else f"-> {brief(action)}")

"""A daemon to talk to: events in, deeds out, on a clock of its own."""

from tests.core.machines import BEAT, deeds, job, node

from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.protocol import events, orders
from ft_supervisor.core.protocol.actions import FinishFiles, Leave
from ft_supervisor.core.protocol.events import ChildExited, Ordered, Tick
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.core.protocol.orders import AgentState

SUCCESS = Verdict(Outcome.SUCCESS, "over")
FAILED = Verdict(Outcome.FAILED, "over")
CANCELLED = Leave(130, None, "told to end by a signal")
SUCCEEDED = (FinishFiles(), Leave(0, SUCCESS, "over"))
LEFT_FAILED = (FinishFiles(), Leave(1, FAILED, "over"))
NO_LEASE = Leave(75, None, "no lease")


class Play:
    """A daemon, its clock, and an agent that sends Alive while `state` is set."""

    def __init__(self, infra_rank: int = 1, candidates: int | tuple[int, ...] = 1) -> None:
        self.now = 0.0
        self.coordinator = True
        """Whether the coordinator sends Alive once it has been started."""
        self.machine = DaemonMachine(job(candidates=candidates), node(infra_rank), 0.0, 1.7e9)
        self.state: AgentState | None = None
        self.fence_in: float | None = None
        self.began = deeds(self.machine.start(0.0))

    def feed(self, *what: events.DaemonEvent) -> list[object]:
        """Let these events happen; return the actions."""
        answers: list[object] = []
        for event in what:
            answers += deeds(self.machine.handle(event, self.now))
        return answers

    def order(self, *what: orders.Order, child: str = "agent") -> list[object]:
        """Let a child send these orders; return the actions."""
        return self.feed(*(Ordered(child, order) for order in what))

    def wait(self, seconds: float) -> list[object]:
        """Let `seconds` of ticks pass, one each heartbeat; return the actions."""
        answers: list[object] = []
        until = self.now + seconds
        while self.now < until:
            self.now += BEAT
            if self.state is not None:
                answers += self.order(orders.Alive(self.state, fence_in=self.fence_in))
            if self.coordinator and self.machine._coordinator.lives:
                answers += self.order(orders.Alive("leading"), child="coordinator")
            answers += self.feed(Tick())
        return answers

    def run(self) -> None:
        """Let the agent run workers."""
        self.state = AgentState.ACTIVE
        assert self.wait(BEAT) == []


AGENT_GONE = ChildExited("agent", "killed by SIGKILL")
COORDINATOR_GONE = ChildExited("coordinator", "exit code 0")

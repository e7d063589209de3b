"""What the tests of the machines share: a job, short names for messages, and a coordinator to talk to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ft_supervisor.core import messages
from ft_supervisor.core.actions import CoordinatorAction, Log, Mail
from ft_supervisor.core.coordinator import CoordinatorMachine
from ft_supervisor.core.events import Ended, Heard, Received, Tick
from ft_supervisor.core.model import Cycle, Failure, Job, Memory, Node, Timeouts, Verdict

C0, C1, C2 = Cycle(0, 0), Cycle(0, 1), Cycle(0, 2)
TIMEOUTS = Timeouts(join=60.0)
BEAT = TIMEOUTS.heartbeat
FAILURE = Failure(1, 0, exit_code=3)


def job(nodes: int = 4, active: int = 3, max_restarts: int = 3, *, signal_workers: bool = False) -> Job:
    """A job of nodes n0, n1, ..."""
    names = tuple(f"n{i}" for i in range(nodes))
    return Job(
        run_id="1.0.0",
        nodes=names,
        hosts=("n0",),
        ports=(1,),
        run_folder="/r",
        local_folder="/l",
        active=active,
        per_node=1,
        command=("x",),
        max_restarts=max_restarts,
        timeouts=TIMEOUTS,
        signal_workers=signal_workers,
    )


def node(infra_rank: int, domain_id: str = "") -> Node:
    """Node n<infra_rank> at address a<infra_rank>."""
    return Node(infra_rank, f"n{infra_rank}", f"a{infra_rank}", domain_id)


def deeds(actions: Iterable[object]) -> list[object]:
    """Everything but log lines."""
    return [action for action in actions if not isinstance(action, Log)]


def lines(actions: Iterable[object]) -> list[str]:
    """The log lines' events."""
    return [action.event for action in actions if isinstance(action, Log)]


def failed(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1) -> messages.WorkersFailed:
    """Worker 0 of the node exited with 3."""
    return messages.WorkersFailed(0, infra_rank, incarnation, cycle, (Failure(infra_rank, 0, exit_code=3),))


def succeeded(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1) -> messages.WorkersSucceeded:
    """All workers of the node exited with 0."""
    return messages.WorkersSucceeded(0, infra_rank, incarnation, cycle)


def stopping(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1) -> messages.Stopping:
    """The node answers a Stop."""
    return messages.Stopping(0, infra_rank, incarnation, cycle)


def stopped(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1) -> messages.WorkersStopped:
    """No worker is left there; port 200 + infra_rank is free."""
    return messages.WorkersStopped(0, infra_rank, incarnation, cycle, 200 + infra_rank)


def goodbye(infra_rank: int, incarnation: int = 1) -> messages.Goodbye:
    """The node leaves."""
    return messages.Goodbye(0, infra_rank, incarnation)


class Talk:
    """A coordinator, its clock and its nodes' heartbeats. Answers are what it does, log lines left out."""

    def __init__(self, nodes: int = 4, active: int = 3, max_restarts: int = 3, domains: Sequence[str] = ()) -> None:
        self.job = job(nodes, active, max_restarts)
        self.now = 0.0
        self.machine = CoordinatorMachine(self.job, self.now)
        self.silent: set[int] = set()
        self.logged: list[str] = []
        self._domains = domains or [""] * nodes

    def _answer(self, actions: list[CoordinatorAction]) -> list[object]:
        self.logged += lines(actions)
        return deeds(actions)

    def hear(self, message: messages.ToCoordinator) -> list[object]:
        """A message arrives."""
        return self._answer(self.machine.handle(Received(message), self.now))

    def register(
        self,
        infra_rank: int,
        incarnation: int = 1,
        connection: int = 1,
        running: Cycle | None = None,
        memory: Memory | None = None,
    ) -> list[object]:
        """A Register arrives; port 100 + infra_rank is free there."""
        return self.hear(
            messages.Register(
                0,
                node(infra_rank, self._domains[infra_rank]),
                incarnation,
                connection,
                100 + infra_rank,
                running,
                memory or Memory(),
            )
        )

    def end(self, verdict: Verdict) -> list[object]:
        """The key holds this verdict."""
        return self._answer(self.machine.handle(Ended(verdict), self.now))

    def wait(self, seconds: float) -> list[object]:
        """Ticks each heartbeat; all but the silent nodes are heard."""
        answers: list[object] = []
        until = self.now + seconds
        while self.now < until:
            self.now += BEAT
            living = frozenset(range(len(self.job.nodes))) - self.silent
            answers += self._answer(self.machine.handle(Heard(living), self.now))
            answers += self._answer(self.machine.handle(Tick(), self.now))
        return answers

    def begin(self) -> list[object]:
        """All nodes register: cycle 0.0 begins."""
        answers: list[object] = []
        for infra_rank in range(len(self.job.nodes)):
            answers = self.register(infra_rank)
        return answers

    def run(self, infra_rank: int, group_rank: int, cycle: Cycle = C0, port: int = 100, **other: int) -> Mail:
        """The Run that the node must get; group_rank 0 is n0."""
        run = messages.Run(
            term=0,
            connection=other.get("connection", 1),
            cycle=cycle,
            group_rank=group_rank,
            group_world_size=self.job.active,
            restart_count=cycle.n,
            max_restarts=max(self.job.max_restarts, cycle.n),
            master_addr=f"a{other.get('master', 0)}",
            master_port=port,
        )
        return Mail(infra_rank, other.get("incarnation", 1), run)


def standby(infra_rank: int, cycle: Cycle | None = C0, incarnation: int = 1) -> Mail:
    """Standby to this node."""
    return Mail(infra_rank, incarnation, messages.Standby(0, cycle))


def stop(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1) -> Mail:
    """Stop to this node."""
    return Mail(infra_rank, incarnation, messages.Stop(0, cycle))


def close(infra_rank: int, verdict: Verdict, incarnation: int = 1) -> Mail:
    """Close to this node."""
    return Mail(infra_rank, incarnation, messages.Close(0, verdict))

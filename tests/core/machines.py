"""Shared by the tests of the machines: a job, short names for messages, and a coordinator to send them to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction, Mail, Pulse, Tell, WriteVerdict
from ft_supervisor.core.protocol.events import (
    CloseHeld,
    CoordinatorEvent,
    Heard,
    Received,
    SlurmToldUs,
    Tick,
    VerdictWritten,
)
from ft_supervisor.core.protocol.model import Cycle, Failure, Job, Memory, Node, Outcome, Roster, Timeouts, Verdict
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.protocol.settings import Budget, Health, RestartMode, Rule, Settings
from ft_supervisor.process.log_lines import FORMS

C0, C1, C2 = Cycle(0, 0), Cycle(0, 1), Cycle(0, 2)
TIMEOUTS = Timeouts(join=60.0)
BEAT = TIMEOUTS.heartbeat
FAILURE = Failure(1, 0, exit_code=3)
RAN = Memory(0, newest=C0, group="0-2")
"""What a node of C0 knows that has promised term 0."""
SUCCESS = Verdict(Outcome.SUCCESS, "all workers of cycle 0.0 exited with 0")


def job(
    nodes: int = 4,
    active: int = 3,
    max_restarts: int = 3,
    *,
    candidates: int | tuple[int, ...] = 3,
    signal_workers: bool = False,
    fail_fast: bool = False,
) -> Job:
    """Return a job of the nodes n0, n1, ... `fail_fast`: off, as most tests let the same worker fail at once."""
    names = tuple(f"n{i}" for i in range(nodes))
    return Job(
        run_id="1.0.0",
        nodes=names,
        hosts=tuple(f"a{i}" for i in range(nodes)),
        ports=(1,),
        run_folder="/r",
        local_folder="/l",
        active=active,
        per_node=1,
        command=("x",),
        settings=Settings(
            rules=(Rule(budget=Budget(max=max_restarts)),), fail_fast=fail_fast, health=Health(min_free=None)
        ),
        timeouts=TIMEOUTS,
        candidates=candidates,
        signal_workers=signal_workers,
    )


def in_process(nodes: int = 4, *rules: Rule) -> Job:
    """Return a job whose workers go on in their processes. `rules`: before the rule for any failure."""
    plain = job(nodes)
    settings = replace(plain.settings, restart=RestartMode.IN_PROCESS, rules=(*rules, *plain.settings.rules))
    return replace(plain, settings=settings)


def node(infra_rank: int, domain_id: str = "") -> Node:
    """Return the node n<infra_rank> at the address a<infra_rank>."""
    return Node(infra_rank, f"n{infra_rank}", f"a{infra_rank}", domain_id)


def deeds(actions: Iterable[object]) -> list[object]:
    """Return all actions except log lines."""
    return [action for action in actions if not isinstance(action, Announce)]


def lines(actions: Iterable[object]) -> list[str]:
    """Return the events of the log lines that are written for these actions."""
    return [FORMS[type(action.fact)].event(action.fact) for action in actions if isinstance(action, Announce)]


def mailed(actions: Iterable[object], kind: type) -> dict[int, messages.ToAgent]:
    """Return the messages of this kind, by the node that they are mailed to."""
    return {a.infra_rank: a.message for a in actions if isinstance(a, Mail) and isinstance(a.message, kind)}


def failed(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1, term: int = 0) -> messages.WorkersFailed:
    """Return the message that worker 0 of the node has exited with 3."""
    return messages.WorkersFailed(term, infra_rank, incarnation, cycle, (Failure(infra_rank, 0, exit_code=3),))


def succeeded(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1, term: int = 0) -> messages.WorkersSucceeded:
    """Return the message that all workers of the node have exited with 0."""
    return messages.WorkersSucceeded(term, infra_rank, incarnation, cycle)


def stopping(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1, term: int = 0) -> messages.Stopping:
    """Return a node's answer to Stop."""
    return messages.Stopping(term, infra_rank, incarnation, cycle)


def stopped(infra_rank: int, cycle: Cycle = C0, incarnation: int = 1, term: int = 0) -> messages.WorkersStopped:
    """Return the message that no worker is left on the node; the port 200 + infra_rank is free."""
    return messages.WorkersStopped(term, infra_rank, incarnation, cycle, 200 + infra_rank)


def verdict_kept(infra_rank: int, incarnation: int = 1, term: int = 0) -> messages.VerdictKept:
    """Return the message that the node's daemon keeps the proposed verdict."""
    return messages.VerdictKept(term, infra_rank, incarnation)


def goodbye(infra_rank: int, incarnation: int = 1, term: int = 0, verdict: Verdict | None = None) -> messages.Goodbye:
    """Return the message of a node that leaves."""
    return messages.Goodbye(term, infra_rank, incarnation, verdict)


def interrupted(reason: str) -> Verdict:
    return Verdict(Outcome.INTERRUPTED, reason)


def decided(verdict: Verdict, lost: str) -> list[object]:
    """Return a coordinator's actions for a decided verdict. Its daemon gets the verdict first."""
    return [Tell(orders.VerdictDecided(verdict, lost)), WriteVerdict(verdict)]


class Talk:
    """A coordinator on `infra_rank`, its clock and its nodes' heartbeats, each of which echoes the newest round.

    The methods return its actions, without log lines, pulses, the orders to its daemon of every beat, and rosters,
    which the nodes answer at once. Run, Standby and Continue are without the ages of their leases.
    """

    def __init__(
        self,
        nodes: int = 4,
        active: int = 3,
        max_restarts: int = 3,
        domains: Sequence[str] = (),
        *,
        infra_rank: int = 0,
        incarnation: int = 1,
        memory: Memory | None = None,
        a_job: Job | None = None,
    ) -> None:
        self.job = a_job or job(nodes, active, max_restarts)
        self.now = 0.0
        self.machine = CoordinatorMachine(self.job, node(infra_rank), incarnation, memory or Memory(), self.now)
        self.silent: set[int] = set()
        self.deaf: set[int] = set()
        """Infra_ranks of nodes that do not answer rosters."""
        self.logged: list[str] = []
        self.pulse = Pulse(0, None, 0)
        self.rosters: list[Roster] = []
        """The rosters that were mailed, in order, each once."""
        self.questions = 0
        """Number of questions to Slurm."""
        self._serials: dict[tuple[int, int], int] = {}
        self._domains = domains or [""] * len(self.job.nodes)
        self.beat()

    def _answer(self, actions: list[CoordinatorAction]) -> list[object]:
        self.logged += lines(actions)
        answers: list[object] = []
        rosters: list[Mail] = []
        for action in deeds(actions):
            if isinstance(action, Pulse):
                self.pulse = action
            elif isinstance(action, Tell) and isinstance(action.order, orders.AskSlurm):
                self.questions += 1
            elif isinstance(action, Tell) and isinstance(action.order, orders.Alive):
                continue
            elif isinstance(action, Mail) and isinstance(action.message, messages.Members):
                rosters.append(action)
            else:
                answers.append(ageless(action))
        for mail in rosters:
            answers += self._keep(mail)
        return answers

    def _keep(self, mail: Mail) -> list[object]:
        assert isinstance(mail.message, messages.Members)
        roster = mail.message.roster
        if roster not in self.rosters:
            self.rosters.append(roster)
        if mail.infra_rank in self.deaf | self.silent:
            return []
        return self.hear(messages.RosterKept(mail.message.term, mail.infra_rank, mail.incarnation, roster.stamp))

    def hear(self, message: messages.ToCoordinator) -> list[object]:
        """Let a message arrive."""
        return self._answer(self.machine.handle(Received(message), self.now))

    def register(
        self,
        infra_rank: int,
        incarnation: int = 1,
        connection: int = 1,
        running: Cycle | None = None,
        memory: Memory | None = None,
        *,
        serial: int | None = None,
        round_: int | None = None,
        told: str = "",
    ) -> list[object]:
        """Let a Register arrive, by default with a promise of term 0. The node's port 100 + infra_rank is free."""
        last = self._serials.get((infra_rank, incarnation), 0)
        self._serials[infra_rank, incarnation] = serial or last + 1
        return self.hear(
            messages.Register(
                node(infra_rank, self._domains[infra_rank]),
                incarnation,
                connection,
                self.pulse.round if round_ is None else round_,
                100 + infra_rank,
                running,
                memory or Memory(promise=0),
                serial or last + 1,
                told,
            )
        )

    def slurm(self, decision: orders.SlurmDecision, **said: object) -> list[object]:
        """Let Slurm's answer arrive."""
        answer = orders.SlurmSaid(decision, **said)  # type: ignore[arg-type]
        return self._answer(self.machine.handle(SlurmToldUs(answer), self.now))

    def event(self, event: CoordinatorEvent) -> list[object]:
        """Let any event happen."""
        return self._answer(self.machine.handle(event, self.now))

    def held(self, verdict: Verdict) -> list[object]:
        """Let the coordinator find this verdict in the key."""
        return self._answer(self.machine.handle(CloseHeld(verdict), self.now))

    def written(self, verdict: Verdict) -> list[object]:
        """Let the coordinator find this verdict in the file once it has written it."""
        return self._answer(self.machine.handle(VerdictWritten(verdict), self.now))

    def beat(self) -> list[object]:
        """Let the heartbeats of all nodes arrive that are not silent, and then a Tick."""
        echoes = tuple((m.node.infra_rank, self.pulse.round) for m in self.machine.members if m.register is not None)
        living = tuple(echo for echo in echoes if echo[0] not in self.silent)
        answers = self._answer(self.machine.handle(Heard(living), self.now))
        return answers + self._answer(self.machine.handle(Tick(), self.now))

    def wait(self, seconds: float) -> list[object]:
        """Let `seconds` of heartbeats pass."""
        answers: list[object] = []
        until = self.now + seconds
        while self.now < until:
            self.now += BEAT
            answers += self.beat()
        return answers

    def begin(self) -> list[object]:
        """Let all nodes register, so that cycle 0.0 begins."""
        answers: list[object] = []
        for infra_rank in range(len(self.job.nodes)):
            answers = self.register(infra_rank)
        return answers

    def settle_from_outside(self, verdict: Verdict) -> list[object]:
        """Let the coordinator find a verdict in the key, write and claim it; return its actions after that."""
        self.held(verdict)
        self.written(verdict)
        return self.held(verdict)

    def run(self, infra_rank: int, group_rank: int, cycle: Cycle = C0, port: int = 100, **other: int) -> Mail:
        """Return the Run that the node must get. group_rank 0 is n0, and the cycle's number counts the restarts."""
        run = messages.Run(
            term=other.get("term", 0),
            cycle=cycle,
            group=format_ranks(self.machine.state.cycles.group),
            group_rank=group_rank,
            group_world_size=self.job.active,
            restart_count=cycle.n,
            max_restarts=max(self.job.max_restarts, cycle.n),
            master_addr=f"a{other.get('master', 0)}",
            master_port=port,
            ledger=self.machine.state.cycles.ledger,
            age=0.0,
        )
        return Mail(infra_rank, other.get("incarnation", 1), other.get("connection", 1), run)

    def standby(self, infra_rank: int, cycle: Cycle | None = C0, **other: int) -> Mail:
        """Return the Standby to this node."""
        message = messages.Standby(other.get("term", 0), cycle, self.machine.state.cycles.ledger, None)
        return Mail(infra_rank, other.get("incarnation", 1), other.get("connection", 1), message)

    def go_on(self, infra_rank: int, cycle: Cycle = C0, **other: int) -> Mail:
        """Return the Continue to this node."""
        message = messages.Continue(other.get("term", 0), cycle, self.machine.state.cycles.ledger, None)
        return Mail(infra_rank, other.get("incarnation", 1), other.get("connection", 1), message)

    def propose(self, verdict: Verdict, *ranks: int, term: int = 0) -> list[object]:
        """Return the Propose to each of these nodes, or to all."""
        to = ranks or range(len(self.job.nodes))
        return [Mail(i, 1, self.machine.members[i].connection, messages.Propose(term, verdict)) for i in to]

    def decided(self, verdict: Verdict) -> list[object]:
        """Return the actions for a decided verdict, with the nodes that are lost at present."""
        return decided(verdict, self.machine.state.lost())


def ageless(action: object) -> object:
    """Return `action` without a lease's age, which depends on the clock (`test_terms` tests it), and without the
    group in a Stop, which is the group of the last Run."""
    if isinstance(action, Mail) and isinstance(action.message, messages.Run):
        return replace(action, message=replace(action.message, age=0.0))
    if isinstance(action, Mail) and isinstance(action.message, messages.Standby | messages.Continue):
        return replace(action, message=replace(action.message, age=None))
    if isinstance(action, Mail) and isinstance(action.message, messages.Stop):
        return replace(action, message=replace(action.message, group=""))
    return action


def stop(
    infra_rank: int,
    cycle: Cycle = C0,
    incarnation: int = 1,
    connection: int = 1,
    term: int = 0,
    grace: float = TIMEOUTS.restart_grace,
) -> Mail:
    """Return the Stop to this node."""
    return Mail(infra_rank, incarnation, connection, messages.Stop(term, cycle, "", grace))


def close(infra_rank: int, verdict: Verdict, incarnation: int = 1, connection: int = 1, term: int = 0) -> Mail:
    """Return the Close to this node."""
    return Mail(infra_rank, incarnation, connection, messages.Close(term, verdict))

"""The coordinator: who trains, when a new cycle begins, and how the job ends.

    phase      what it waits for                                       then
    JOINING    all nodes, or enough of them for node_lost               a cycle: RUNNING
    RUNNING    WorkersSucceeded of every active node                    verdict success: CLOSING
               a failure, a lost active node, a replaced agent          Stop to the active ones: STOPPING
    STOPPING   every active node stopped or lost                        a cycle: RUNNING; too few nodes: CLOSING
    CLOSING    every member's Goodbye, bounded                          leaves

The store's `permanent_close` alone decides between two verdicts: Conclude claims it, and Ended says what it holds,
whoever wrote it. Only then does Close go out.
"""

from __future__ import annotations

from enum import StrEnum

from ft_supervisor.core import messages, placement, policy
from ft_supervisor.core.actions import Conclude, CoordinatorAction, Leave, Mail, Record, log
from ft_supervisor.core.events import CoordinatorEvent, Ended, Heard, Received, Tick
from ft_supervisor.core.members import Member, Members
from ft_supervisor.core.model import KILL_BOUND, TERM, Cycle, Job, Outcome, Verdict, one_line

STOP_MARGIN = 10.0
"""Seconds beyond grace and kill until a node that can't end its workers ends the job."""


class Phase(StrEnum):
    """Where the job is."""

    JOINING = "joining"
    RUNNING = "running"
    STOPPING = "stopping"
    CLOSING = "closing"


class CoordinatorMachine:
    """Pure: `handle` takes what happened and returns what to do. All times in seconds."""

    def __init__(self, job: Job, now: float, term: int = TERM) -> None:
        self.job = job
        self.term = term
        self.phase = Phase.JOINING
        self.cycle: Cycle | None = None
        self.group: tuple[int, ...] = ()
        self.members = Members()
        self.verdict: Verdict | None = None
        self._used = 0
        self._pending: set[int] = set()
        self._waiting: set[int] = set()
        self._since = now
        self._reason = ""
        self._held: Verdict | None = None
        self._enough_since: float | None = None
        self._short_since: float | None = None
        self._suspects: set[int] = set()
        self._last_tick = now
        self._actions: list[CoordinatorAction] = []

    def handle(self, event: CoordinatorEvent, now: float) -> list[CoordinatorAction]:
        """One event in, actions out, in order."""
        self._actions = []
        match event:
            case Received(message):
                self._receive(message, now)
            case Heard(infra_ranks):
                for infra_rank in infra_ranks:
                    self.members.heard(infra_rank, now)
            case Ended(verdict):
                self._close(verdict, now)
            case Tick():
                self._tick(now)
        return self._actions

    # -- messages

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        if message.term != self.term or not 0 <= message.infra_rank < len(self.job.nodes):
            self._log(
                "message_dropped", "warning", message=type(message).__name__, node=message.infra_rank, term=message.term
            )
            return
        if isinstance(message, messages.Register):
            self._register(message, now)
            return
        member = self.members.get(message.infra_rank)
        if member is None or member.incarnation != message.incarnation or member.gone:
            return
        member.heard = now
        match message:
            case messages.Goodbye():
                self._goodbye(member, now)
            case messages.Leaving(reason=reason):
                self._conclude(Outcome.CANCELLED, f"{member.node.name} was told to end: {reason}")
            case messages.WorkersStopped(cycle=cycle, port=port):
                if cycle == self.cycle or not self._active(member):
                    member.port = port
                    if self._active(member) and message.infra_rank in self._pending:  # unasked: word of why was lost
                        self._restart(f"{member.node.name} stopped its workers", charged=True, now=now)
                    self._stopped(member, now)
            case messages.WorkersFailed() | messages.WorkersSucceeded() | messages.Stopping():
                if message.cycle == self.cycle and self._active(member):
                    self._of_cycle(message, member, now)

    def _of_cycle(
        self,
        message: messages.WorkersFailed | messages.WorkersSucceeded | messages.Stopping,
        member: Member,
        now: float,
    ) -> None:
        match message:
            case messages.Stopping():
                self._suspects.discard(message.infra_rank)
            case messages.WorkersSucceeded():
                self._succeeded(member, now)
            case messages.WorkersFailed(failures=failures):
                for failure in failures:
                    self._log("worker_failed", "warning", node=member.node.name, cycle=self.cycle, failure=str(failure))
                if self.phase is Phase.RUNNING:
                    first = f"{member.node.name}: {failures[0]}" if failures else f"{member.node.name}: workers failed"
                    self._restart(first, charged=True, now=now, patient=policy.told_to_end(failures))

    def _register(self, message: messages.Register, now: float) -> None:
        member = self.members.register(message, now)
        if member is None:
            return
        name = member.node.name
        self._log("registered", node=name, infra_rank=message.infra_rank, incarnation=message.incarnation)
        if self.verdict is not None:
            self._mail(member, messages.Close(self.term, self.verdict))
        elif message.memory.verdict is not None:
            self._conclude(message.memory.verdict.outcome, message.memory.verdict.reason)
        elif self._active(member):
            self._register_active(message, member, now)
        else:
            self._mail(member, messages.Standby(self.term, self.cycle))
            # While some are missing, only ticks look whether enough are here: 1,000 joins shall not cost 1,000 squared.
            if self.phase is not Phase.JOINING or len(self.members) == len(self.job.nodes):
                self._advance(now)

    def _register_active(self, message: messages.Register, member: Member, now: float) -> None:
        """An active node's connection, or its whole agent, is new: go by what it says of the running cycle."""
        assert self.cycle is not None
        newest = message.memory.newest
        if message.memory.succeeded == self.cycle:
            self._succeeded(member, now)
        elif message.running == self.cycle:
            if message.memory.failures:
                self._restart(f"{member.node.name}: {message.memory.failures[0]}", charged=True, now=now)
            if self.phase is Phase.STOPPING:
                self._mail(member, messages.Stop(self.term, self.cycle))
        elif message.running is not None:
            self._mail(member, messages.Standby(self.term, None))
            self._restart(f"{member.node.name} still runs cycle {message.running}", charged=True, now=now)
        elif self.phase is Phase.RUNNING and (newest is None or newest < self.cycle):
            self._run(member, self.group.index(message.infra_rank))
        else:
            if self.phase is Phase.RUNNING:
                failures = message.memory.failures
                why = failures[0] if failures else "its agent was replaced"
                self._restart(f"{member.node.name}: {why}", charged=True, now=now)
            self._stopped(member, now)

    def _succeeded(self, member: Member, now: float) -> None:
        member.running = False
        self._pending.discard(member.node.infra_rank)
        if self.phase is Phase.RUNNING and not self._pending:
            self._conclude(Outcome.SUCCESS, f"all workers of cycle {self.cycle} exited with 0")
        else:
            self._stopped(member, now)

    def _stopped(self, member: Member, now: float) -> None:
        member.running = False
        self._waiting.discard(member.node.infra_rank)
        self._advance(now)

    def _goodbye(self, member: Member, now: float) -> None:
        member.gone = True
        member.running = False
        if self.phase is Phase.CLOSING:
            self._leave_when_done(now)
        else:
            self._missing(member, f"{member.node.name} left", charged=False, now=now)

    # -- time

    def _tick(self, now: float) -> None:
        timeouts = self.job.timeouts
        late = now - self._last_tick - 2 * timeouts.heartbeat
        self._last_tick = now
        if late > 0:
            self._log("tick_late", "warning", seconds=round(late, 1))
            self.members.forgive(late, now)
        for member in self.members:
            if member.here and now - member.heard >= timeouts.node_lost:
                self._lose(member, now)
        if self.phase is Phase.CLOSING:
            self._leave_when_done(now)
            return
        self._advance(now)
        if self.phase is Phase.JOINING and now - self._since >= timeouts.join:
            here = sum(member.here for member in self.members)
            self._conclude(
                Outcome.INTERRUPTED, f"too few nodes: {here} of {self.job.active} came within {timeouts.join:g} s"
            )
        elif self.phase is Phase.STOPPING:
            self._watch_stopping(now)

    def _watch_stopping(self, now: float) -> None:
        timeouts = self.job.timeouts
        if self._suspects and now - self._since >= timeouts.probe:
            names = self._names(sorted(self._suspects & self._waiting))
            if names:
                self._log("suspect", "warning", nodes=names, reason=f"no answer within {timeouts.probe:g} s")
            self._suspects.clear()
        bound = timeouts.restart_grace + KILL_BOUND + timeouts.node_lost + STOP_MARGIN
        if self._waiting and now - self._since >= bound:
            names = self._names(sorted(self._waiting))
            self._conclude(Outcome.INTERRUPTED, f"{names} did not stop its workers within {bound:g} s")

    def _lose(self, member: Member, now: float) -> None:
        member.lost = True
        member.running = False  # its fence has ended whatever ran there (design section 7)
        member.times_lost += 1
        reason = f"{member.node.name} was not heard for {self.job.timeouts.node_lost:g} s"
        self._log("node_lost", "warning", node=member.node.name, reason=reason)
        self._missing(member, reason, charged=member.times_lost > 1, now=now)

    def _missing(self, member: Member, reason: str, *, charged: bool, now: float) -> None:
        """A node can run nothing any more."""
        if self.phase is Phase.RUNNING and member.node.infra_rank in self._pending:
            self._restart(reason, charged=charged, now=now)
        self._waiting.discard(member.node.infra_rank)
        self._advance(now)

    # -- cycles

    def _advance(self, now: float) -> None:
        """Begin a cycle when nothing stands in its way."""
        timeouts = self.job.timeouts
        if self.phase is Phase.JOINING:
            healthy = self.members.healthy(now, timeouts.coordinator)
            if len(healthy) < self.job.active:
                self._enough_since = None
                return
            self._enough_since = now if self._enough_since is None else self._enough_since
            waited = now - self._enough_since >= timeouts.node_lost or now - self._since >= timeouts.join
            if waited or len(healthy) == len(self.job.nodes):
                group = placement.first(healthy, self.job.active)
                assert group is not None
                self._start(group, "enough nodes are here")
        elif self.phase is Phase.STOPPING and self._held is not None:
            if now - self._since >= timeouts.probe:
                self._conclude(self._held.outcome, self._held.reason)
        elif self.phase is Phase.STOPPING and not self._waiting:
            healthy = self.members.healthy(now, timeouts.coordinator)
            group = placement.replace(self.group, healthy, self.members.domains())
            if group is not None:
                self._start(group, self._reason)
            else:
                self._too_few(len(healthy), now)

    def _too_few(self, healthy: int, now: float) -> None:
        """Give up, but only after a last chance for a node whose agent is just being replaced."""
        timeouts = self.job.timeouts
        if self.members.undecided(now, timeouts.coordinator):
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
            self._log("too_few_nodes", "warning", healthy=healthy, needed=self.job.active)
        elif now - self._short_since >= timeouts.node_lost:
            reason = f"too few nodes: {healthy} of {self.job.active} are left; {self._reason}"
            self._conclude(Outcome.INTERRUPTED, reason)

    def _start(self, group: tuple[int, ...], reason: str) -> None:
        former = self.group
        self.cycle = Cycle(self.term, self.cycle.n + 1 if self.cycle else 0)
        self.group, self.phase, self._short_since = group, Phase.RUNNING, None
        self._pending = set(group)
        new = [node for node in group if node not in former] if former else list(group)
        self._log("cycle_started", cycle=self.cycle, nodes=len(group), new=self._names(new) or None, reason=reason)
        for node in sorted(set(former) - set(group)):
            successor = self.members[group[former.index(node)]].node
            self._log("promoted", node=successor.name, instead_of=self.job.nodes[node], group_rank=former.index(node))
        for group_rank, node in enumerate(group):
            self._run(self.members[node], group_rank)
        for member in self.members:
            if member.here and member.node.infra_rank not in self._pending:
                self._mail(member, messages.Standby(self.term, self.cycle))

    def _run(self, member: Member, group_rank: int) -> None:
        assert self.cycle is not None
        member.running = True
        master = self.members[self.group[0]]
        run = messages.Run(
            term=self.term,
            connection=member.connection,
            cycle=self.cycle,
            group_rank=group_rank,
            group_world_size=len(self.group),
            restart_count=self.cycle.n,
            max_restarts=max(self.job.max_restarts, self.cycle.n),
            master_addr=master.node.addr,
            master_port=master.port,
        )
        self._mail(member, run)

    def _restart(self, reason: str, *, charged: bool, now: float, patient: bool = False) -> None:
        """Stop the running cycle; the next begins when all have stopped. With the budget spent the job ends instead,
        if `patient` only after `probe`: should a Leaving follow, it was cancelled."""
        assert self.cycle is not None
        if self.phase is not Phase.RUNNING:
            return
        decision = policy.decide(reason, charged=charged, used=self._used, max_restarts=self.job.max_restarts)
        self._used = decision.used
        if decision.verdict is not None and not patient:
            self._conclude(decision.verdict.outcome, decision.verdict.reason)
            return
        self.phase, self._since, self._reason, self._held = Phase.STOPPING, now, reason, decision.verdict
        self._waiting = {node for node in self.group if self.members[node].running}
        self._suspects = set(self._waiting)
        self._log("restart", "warning", cycle=self.cycle, reason=reason, used=self._used, budget=self.job.max_restarts)
        for node in sorted(self._waiting):
            if self.members[node].here:
                self._mail(self.members[node], messages.Stop(self.term, self.cycle))

    # -- the end

    def _conclude(self, outcome: Outcome, reason: str) -> None:
        if self.phase is not Phase.CLOSING:
            self.phase = Phase.CLOSING
            self._actions.append(Conclude(Verdict(outcome, one_line(reason))))

    def _close(self, verdict: Verdict, now: float) -> None:
        if self.verdict is not None:
            return
        self.phase, self.verdict, self._since = Phase.CLOSING, verdict, now
        self._log("verdict", outcome=verdict.outcome.value, code=verdict.exit_code, reason=verdict.reason)
        for member in self.members:
            if member.here:
                self._mail(member, messages.Close(self.term, verdict))
        self._actions.append(Record(verdict))
        self._leave_when_done(now)

    def _leave_when_done(self, now: float) -> None:
        if self.verdict is None:
            return
        timeouts = self.job.timeouts
        bound = timeouts.close_grace
        if self.verdict.outcome is not Outcome.SUCCESS:
            bound += timeouts.stop_grace + KILL_BOUND
        if now - self._since >= bound or not any(member.here for member in self.members):
            self._actions.append(Leave(self.verdict.exit_code, self.verdict, self.verdict.reason))

    # -- small things

    def _active(self, member: Member) -> bool:
        return self.phase in (Phase.RUNNING, Phase.STOPPING) and member.node.infra_rank in self.group

    def _mail(self, member: Member, message: messages.ToAgent) -> None:
        self._actions.append(Mail(member.node.infra_rank, member.incarnation, message))

    def _names(self, nodes: list[int], limit: int = 8) -> str:
        more = f" and {len(nodes) - limit} more" if len(nodes) > limit else ""
        return ",".join(self.job.nodes[node] for node in nodes[:limit]) + more

    def _log(self, event: str, level: str = "info", /, **fields: object) -> None:
        self._actions.append(log(event, level, **fields))

"""The cycles of a coordinator that is in charge: who trains, when a new cycle begins, and what a failure leads to.

phase      what it waits for                                       then
JOINING    all nodes, or enough of them for node_lost              a cycle: RUNNING
RUNNING    WorkersSucceeded of every active node                   concludes: success
           a failure, a lost active node, a replaced agent         Stop to the active ones: STOPPING
STOPPING   everybody stopped or lost; then the rule's pause        a cycle: RUNNING; too few nodes, or a rule or its
                                                                   budget says so: concludes
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Protocol

from ft_supervisor.core import messages
from ft_supervisor.core.ending import Ending
from ft_supervisor.core.ledger import Ledger, newer
from ft_supervisor.core.members import Member, Members
from ft_supervisor.core.model import KILL_BOUND, Again, Cycle, Failure, Job, Memory, Outcome, Problem, Verdict
from ft_supervisor.core.placement import Assignment
from ft_supervisor.core.policy import Decision, MayGo, Trouble
from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.ranks import fold, unfold
from ft_supervisor.core.selection import Selection
from ft_supervisor.core.settings import Cause, OnExhausted
from ft_supervisor.core.summary import Tally
from ft_supervisor.core.telling import LastDecision, Telling

STOP_MARGIN = 10.0
"""Seconds beyond grace and kill until a node that can't end its workers ends the job."""

STEADY = 300.0
"""Seconds that a cycle has to run for its failure to be the first in a row."""


class Phase(StrEnum):
    """Where the training is."""

    JOINING = "joining"
    RUNNING = "running"
    STOPPING = "stopping"


class Lead(Protocol):
    """What the cycles ask of the coordinator in charge."""

    def mail(self, member: Member, message: messages.ToAgent) -> None:
        """Send it."""

    def announce(self, fact: facts.CoordinatorFact) -> None:
        """Let everything know that looks on."""

    def conclude(self, verdict: Verdict) -> None:
        """End the job. Nothing more is to be done here."""

    def read_step(self) -> None:
        """Look at the job's step file; `step_read` follows."""

    def wall(self, now: float) -> float:
        """Seconds since the epoch by our clock."""

    def age(self, now: float) -> float | None:
        """Seconds since a majority was certainly with us."""

    def may_start(self, now: float) -> bool:
        """Whether nobody else can be in charge, nor have been since the last lost node's fence."""

    def eligible(self) -> frozenset[int]:
        """The members that a successor would certainly ask: only these may be given work."""


class Cycles:
    """One term's view of the training. All times in seconds."""

    def __init__(self, job: Job, members: Members, lead: Lead, term: int, now: float) -> None:
        self.job = job
        self.phase = Phase.JOINING
        self.cycle: Cycle | None = None
        self.group: tuple[int, ...] = ()
        self.started: float | None = None
        """When the present cycle began; None where that was before our term."""
        self.selection = Selection(job, members, lead.eligible)
        self.tally = Tally(job.nodes)
        self._members = members
        self._lead = lead
        self._term = term
        self._ending = Ending(job, now)
        self._telling = Telling(job, lead.announce)
        self._pending: set[int] = set()
        self._master = ("", 0)
        self._since = now
        self._short_since: float | None = None

    @property
    def ledger(self) -> Ledger:
        """What has been spent of the budgets."""
        return self._ending.ledger

    @property
    def last_decision(self) -> LastDecision | None:
        """Our term's newest decision."""
        return self._telling.last

    def active(self, member: Member) -> bool:
        """Whether it belongs to the present cycle."""
        return self.cycle is not None and member.node.infra_rank in self.group

    # -- what nodes say

    def adopt(self, memories: Sequence[Memory], now: float) -> None:
        """Go on from what a majority knows of a former term's cycles; each of them is to be welcomed afterwards."""
        for memory in memories:
            self._take_over(memory.ledger)
        newest = max(memories, key=lambda memory: memory.newest or Cycle(-1, -1))
        self.cycle, self.group = newest.newest, unfold(newest.group)
        if self.cycle is not None:
            self.phase, self._pending, self._since = Phase.RUNNING, set(self.group), now
            if gone := [rank for rank in self.group if self._members.get(rank) is None]:
                reason = f"{self.job.names_of(gone)} was given up by the former coordinator"
                self._trouble(Trouble(reason, Cause.NODE_LOST, gone[0], charged=False), now)

    def _take_over(self, other: Ledger) -> None:
        self._ending.ledger = newer(self._ending.ledger, other)
        self.selection.excluded = frozenset(unfold(self._ending.ledger.excluded))

    def welcome(self, message: messages.Register, member: Member, now: float) -> None:
        """A node has registered: tell it what to do."""
        memory = message.memory
        self._take_over(memory.ledger)
        if memory.newest is not None and memory.newest > (self.cycle or Cycle(-1, -1)):
            self._learn(memory, member, now)
        if self.active(member):
            self._welcome_active(message, member, now)
        else:
            self._stand_by(member, now)
            # While some are missing, only ticks look whether enough are here: 1,000 joins shall not cost 1,000 squared.
            if self.phase is not Phase.JOINING or len(self._members) == len(self.job.nodes):
                self.advance(now)

    def _learn(self, memory: Memory, member: Member, now: float) -> None:
        """A former coordinator began it and reached only nodes that had not yet told us: it may simply go on, unless
        one of its nodes has told us already, and did not know of it."""
        self.cycle, self.group, self.started = memory.newest, unfold(memory.group), None
        self.phase, self._pending, self._since = Phase.RUNNING, set(self.group), now
        others = (self._members.get(rank) for rank in self.group)
        if any(
            other is None or not other.here or (other.register and other.register.memory.newest != self.cycle)
            for other in others
        ):
            reason = f"{member.node.name} knows of cycle {self.cycle}, begun by a former coordinator"
            self._trouble(Trouble(reason, charged=False), now)

    def _welcome_active(self, message: messages.Register, member: Member, now: float) -> None:
        """An active node's connection, agent or coordinator is new: go by what it says of the running cycle."""
        assert self.cycle is not None
        memory = message.memory
        failure = memory.failures[0] if memory.failures else None
        if memory.succeeded == self.cycle:
            self._go_on(member, now)
            self._succeeded(member, now)
        elif message.running == self.cycle:
            if memory.unhealthy is not None:
                self.unhealthy(member, memory.unhealthy, now)
            elif failure is not None:
                self._failed(member, failure, now)
            if self.phase is Phase.STOPPING:
                self._lead.mail(member, self._stop())
            else:
                self._go_on(member, now)
        elif message.running is not None:
            self._stand_by(member, now, watch=False)
            self._blame(member, f"still runs cycle {message.running}", now)
        elif self.cycle.term == self._term and (memory.newest is None or memory.newest < self.cycle):
            self._run_or_stop(member, now)
        else:
            if self.phase is Phase.RUNNING or memory.unhealthy is not None:  # its peers may have been heard first
                self._explain(member, memory, failure, now)
            self._stand_by(member, now)
            self._stopped(member, now)

    def _run_or_stop(self, member: Member, now: float) -> None:
        """It said this before it heard of our Run, which may still reach it; or the Run is lost."""
        if self.phase is Phase.RUNNING:
            self._run(member, fold(self.group), self.group.index(member.node.infra_rank), now)
        else:
            member.running, member.cycle = True, self.cycle
            self._lead.mail(member, self._stop())

    def _explain(self, member: Member, memory: Memory, failure: Failure | None, now: float) -> None:
        """It is active, and runs nothing."""
        if memory.unhealthy is not None:
            self.unhealthy(member, memory.unhealthy, now)
        elif failure is not None:
            self._failed(member, failure, now)
        elif memory.newest == self.cycle:
            self._blame(member, "its workers are gone", now)
        else:
            self._blame(member, f"it never ran cycle {self.cycle}", now, charged=False)

    def _failed(self, member: Member, failure: Failure, now: float) -> None:
        reason = f"{member.node.name}: {failure}"
        self._trouble(Trouble(reason, failure.cause, member.node.infra_rank, failure), now)

    def _blame(self, member: Member, what: str, now: float, *, charged: bool = True) -> None:
        reason = f"{member.node.name}: {what}"
        cause = Cause.EXIT if charged else None
        self._trouble(Trouble(reason, cause, member.node.infra_rank, charged=charged), now)

    def unhealthy(self, member: Member, problem: Problem, now: float) -> None:
        """A check has failed on this node, which is not to be chosen again."""
        if self.active(member) and member.node.infra_rank in self._pending:
            reason = f"{member.node.name}: {problem.reason}"
            trouble = Trouble(reason, Cause.HEALTH, member.node.infra_rank, check=problem.check, charged=False)
            self._trouble(trouble, now)

    def hear(
        self,
        message: messages.WorkersFailed | messages.WorkersSucceeded | messages.Stopping | messages.WorkersStopped,
        member: Member,
        now: float,
    ) -> None:
        """What has become of a node's workers."""
        if isinstance(message, messages.WorkersStopped):
            self._hear_stopped(message, member, now)
        elif message.cycle == self.cycle and self.active(member):
            self._hear_active(message, member, now)

    def _hear_stopped(self, message: messages.WorkersStopped, member: Member, now: float) -> None:
        member.port = message.port
        if member.cycle is not None and message.cycle < member.cycle:
            return
        if self.phase is Phase.RUNNING and self.active(member) and message.infra_rank in self._pending:
            self._blame(member, "stopped its workers", now)  # unasked: word of why was lost
        self._stopped(member, now)

    def _hear_active(
        self,
        message: messages.WorkersFailed | messages.WorkersSucceeded | messages.Stopping,
        member: Member,
        now: float,
    ) -> None:
        match message:
            case messages.Stopping():
                self._ending.heard(message.infra_rank)
            case messages.WorkersSucceeded():
                self._succeeded(member, now)
            case messages.WorkersFailed(failures=failures):
                self._lead.announce(facts.FailuresHeard(member.node.infra_rank, message.cycle, len(failures)))
                for failure in failures:
                    self._failed(member, failure, now)
                if not failures:
                    self._blame(member, "workers failed", now)

    def _succeeded(self, member: Member, now: float) -> None:
        member.stopped()
        self._ending.heard(member.node.infra_rank)
        self._pending.discard(member.node.infra_rank)
        if self.phase is Phase.RUNNING and not self._pending:
            self._lead.conclude(Verdict(Outcome.SUCCESS, f"all workers of cycle {self.cycle} exited with 0"))
        else:
            self.advance(now)

    def _stopped(self, member: Member, now: float) -> None:
        member.stopped()
        self._ending.heard(member.node.infra_rank)
        self.advance(now)

    def missing(self, member: Member, reason: str, *, ran: bool, charged: bool, now: float) -> None:
        """A node can run nothing any more; `ran`: until now it might have."""
        infra_rank = member.node.infra_rank
        self._ending.heard(infra_rank)
        if infra_rank in self._pending and (self.phase is Phase.RUNNING or ran):
            self._trouble(Trouble(reason, Cause.NODE_LOST, infra_rank, charged=charged), now)
            self.tally.broken(member.heard)
        self.advance(now)

    def step_read(self, step: int | None, now: float) -> None:
        """The step of the newest checkpoint; None: there is none that can be read."""
        self._ending.read_step(step)
        self.advance(now)

    def drain(self, nodes: frozenset[int], now: float) -> None:
        """Slurm is about to take these nodes away."""
        self.selection.draining = nodes
        leaving = nodes & set(self.group)
        if not leaving or self.phase is not Phase.RUNNING or not self.job.settings.interruption.drain_now:
            return
        if self.selection.can_replace(leaving, self.group, now):
            names = self.job.names_of(sorted(leaving))
            self._trouble(Trouble(f"Slurm drains {names}", Cause.DRAIN, min(leaving), charged=False), now)

    # -- what is said to them

    def _stand_by(self, member: Member, now: float, *, watch: bool = True) -> None:
        cycle = self.cycle if watch else None
        self._lead.mail(member, messages.Standby(self._term, cycle, self.ledger, self._lead.age(now)))

    def _go_on(self, member: Member, now: float) -> None:
        assert self.cycle is not None
        self._lead.mail(member, messages.Continue(self._term, self.cycle, self.ledger, self._lead.age(now)))

    def _stop(self) -> messages.Stop:
        assert self.cycle is not None
        return messages.Stop(self._term, self.cycle, fold(self.group), self._ending.grace)

    def _run(self, member: Member, group: str, group_rank: int, now: float) -> None:
        """`group` is ours, folded: for 1,000 nodes that takes longer than all the rest."""
        assert self.cycle is not None
        member.running, member.cycle = True, self.cycle
        age = self._lead.age(now)
        run = messages.Run(
            term=self._term,
            cycle=self.cycle,
            group=group,
            group_rank=group_rank,
            group_world_size=len(self.group),
            restart_count=self.cycle.n,
            max_restarts=max(self.job.max_restarts, self.cycle.n),
            master_addr=self._master[0],
            master_port=self._master[1],
            ledger=self.ledger,
            age=self.job.timeouts.fence if age is None else age,
        )
        self._lead.mail(member, run)

    # -- time

    def tick(self, now: float) -> None:
        """Every heartbeat in which a majority is with us."""
        self.advance(now)
        timeouts = self.job.timeouts
        if self.phase is Phase.JOINING and now - self._since >= timeouts.join:
            here = sum(member.here for member in self._members)
            reason = f"too few nodes: {here} of {self.selection.least} came within {timeouts.join:g} s"
            self._lead.conclude(Verdict(Outcome.INTERRUPTED, reason))
        elif self.phase is Phase.STOPPING:
            self._watch_stopping(now)
        elif self.job.settings.placement.grow_now and (size := self.selection.can_grow(self.group, now)):
            grows = f"growing from {len(self.group)} to {size} nodes"
            self._trouble(Trouble(grows, charged=False, growth=True), now)

    def _watch_stopping(self, now: float) -> None:
        running = self._members.running()
        self._telling.suspects(self._ending.suspects(now) & running)
        bound = self._ending.grace + KILL_BOUND + self.job.timeouts.node_lost + STOP_MARGIN
        if running and now - self._ending.since >= bound:
            reason = f"{self.job.names_of(sorted(running))} did not stop its workers within {bound:g} s"
            self._lead.conclude(Verdict(Outcome.INTERRUPTED, reason))

    # -- cycles

    def advance(self, now: float) -> None:
        """Begin a cycle, or end the job, when nothing stands in its way."""
        if self.phase is Phase.JOINING:
            self._begin_when_enough(now)
        elif self.phase is Phase.STOPPING:
            self._end_or_go_on(now)

    def _end_or_go_on(self, now: float) -> None:
        ending, wall = self._ending, self._lead.wall(now)
        if ending.decision is None and (last := ending.last_word(wall, now)) is not None:
            self._tell(last, now)
            assert last.verdict is not None
            self._lead.conclude(last.verdict)
        elif not self._members.anybody_runs() and self._lead.may_start(now):
            if ending.decision is None and (decision := ending.settle(wall, now, self._may_go(now))) is not None:
                self._take_over(decision.ledger)
                self._tell(decision, now)
            if ending.decision is not None and now >= ending.not_before:
                self._begin_next(ending.decision, now)

    def _may_go(self, now: float) -> MayGo:
        return lambda failing: self.selection.may_go(failing, self.group, now)

    def _begin_when_enough(self, now: float) -> None:
        if self.selection.enough(self._since, now) and self._lead.may_start(now):
            found = self.selection.first(now)
            if found.group is not None:
                self._start(found.group, f"enough nodes are here: {found.reason}", now)

    def _begin_next(self, decision: Decision, now: float) -> None:
        found = self.selection.next(self.group, now, 0.0 if self._short_since is None else now - self._short_since)
        if found.group is not None:
            self._start(found.group, f"{decision.reason}; {found.reason}", now)
        else:
            self._too_few(found, decision, now)

    def _too_few(self, found: Assignment, decision: Decision, now: float) -> None:
        """Give up, but only after a last chance for a node whose agent is just being replaced, or for as long as the
        policy says."""
        timeouts, exhausted = self.job.timeouts, self.job.settings.placement.on_exhausted
        if self.selection.coming(now):
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
            self._lead.announce(facts.TooFewNodes(found.reason, exhausted))
        elif now - self._short_since >= (timeouts.join if exhausted is OnExhausted.WAIT else timeouts.node_lost):
            again = Again.REQUEUE if exhausted is OnExhausted.REQUEUE else Again.OPEN
            reason = f"too few nodes: {found.reason}; {decision.reason}"
            self._lead.conclude(Verdict(Outcome.INTERRUPTED, reason, again))

    def _start(self, group: tuple[int, ...], reason: str, now: float) -> None:
        former = self.group
        self.cycle = Cycle(self._term, self.cycle.n + 1 if self.cycle else 0)
        self.group, self.phase, self._since, self._short_since = group, Phase.RUNNING, now, None
        self.started = now
        self.tally.started(former, group, now)
        self._pending = set(group)
        self._master = self._members[group[0]].node.addr, self._members[group[0]].port
        self._telling.began(self.cycle, former, group, reason, now)
        folded = fold(group)
        for group_rank, node in enumerate(group):
            self._run(self._members[node], folded, group_rank, now)
        for member in self._members:
            if member.registered and member.node.infra_rank not in self._pending:
                self._stand_by(member, now)

    # -- the end of a cycle

    def _trouble(self, trouble: Trouble, now: float) -> None:
        """The running cycle cannot go on: stop it. More of the kind may come until all have stopped."""
        if self.phase is Phase.RUNNING:
            self._end_cycle(trouble, now)
        elif self.phase is Phase.STOPPING and self._ending.add(trouble, self._lead.wall(now)):
            self._tell_to_stop(self._still_running())

    def _end_cycle(self, trouble: Trouble, now: float) -> None:
        if now - self._since >= STEADY:
            self._ending.ledger = self._ending.ledger.steady()
        self.phase, running = Phase.STOPPING, self._still_running()
        self._ending.begin(trouble, running, self._lead.wall(now), now)
        self.tally.broken(now)
        self._telling.failed(self.cycle, trouble, now)
        if self.job.settings.step_file:
            self._lead.read_step()
        self._tell_to_stop(running)

    def _still_running(self) -> set[int]:
        return self._members.running() & set(self.group)

    def _tell_to_stop(self, nodes: Collection[int]) -> None:
        stop = self._stop()
        for node in sorted(nodes):
            if self._members[node].registered:
                self._lead.mail(self._members[node], stop)

    def _tell(self, decision: Decision, now: float) -> None:
        ending = self._ending
        self._telling.decided(decision, ending.trouble, self.cycle, self.group, now)

"""The cycles of a coordinator that is in charge: who trains, when a new cycle begins, and what a failure leads to.

phase      what it waits for                                       then
JOINING    all nodes, or enough of them for node_lost              a cycle: RUNNING
RUNNING    WorkersSucceeded of every active node                   concludes: success
           a failure, a lost active node, a replaced agent         Stop to the active ones: STOPPING
STOPPING   everybody stopped or lost                               a cycle: RUNNING; too few nodes: concludes
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from ft_supervisor.core import messages, placement, policy
from ft_supervisor.core.members import Member, Members
from ft_supervisor.core.model import KILL_BOUND, Cycle, Job, Memory, Outcome, Verdict
from ft_supervisor.core.ranks import fold, unfold

STOP_MARGIN = 10.0
"""Seconds beyond grace and kill until a node that can't end its workers ends the job."""


class Phase(StrEnum):
    """Where the training is."""

    JOINING = "joining"
    RUNNING = "running"
    STOPPING = "stopping"


class Lead(Protocol):
    """What the cycles ask of the coordinator in charge."""

    def mail(self, member: Member, message: messages.ToAgent) -> None:
        """Send it."""

    def log(self, event: str, level: str = "info", /, **fields: object) -> None:
        """One line."""

    def conclude(self, outcome: Outcome, reason: str) -> None:
        """End the job. Nothing more is to be done here."""

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
        self._members = members
        self._lead = lead
        self._term = term
        self._used = 0
        self._pending: set[int] = set()
        self._master = ("", 0)
        self._since = now
        self._reason = "takeover"
        self._held: Verdict | None = None
        self._enough_since: float | None = None
        self._short_since: float | None = None
        self._suspects: set[int] = set()

    def active(self, member: Member) -> bool:
        """Whether it belongs to the present cycle."""
        return self.cycle is not None and member.node.infra_rank in self.group

    # -- what nodes say

    def adopt(self, memories: Sequence[Memory], now: float) -> None:
        """Go on from what a majority knows of a former term's cycles; each of them is to be welcomed afterwards."""
        self._used = max(memory.used for memory in memories)
        newest = max(memories, key=lambda memory: memory.newest or Cycle(-1, -1))
        self.cycle, self.group = newest.newest, unfold(newest.group)
        if self.cycle is not None:
            self.phase, self._pending = Phase.RUNNING, set(self.group)
            if gone := [rank for rank in self.group if self._members.get(rank) is None]:
                self._restart(f"{self._names(gone)} was given up by the former coordinator", charged=False, now=now)

    def welcome(self, message: messages.Register, member: Member, now: float) -> None:
        """A node has registered: tell it what to do."""
        memory = message.memory
        self._used = max(self._used, memory.used)
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
        self.cycle, self.group = memory.newest, unfold(memory.group)
        self.phase, self._pending = Phase.RUNNING, set(self.group)
        others = (self._members.get(rank) for rank in self.group)
        if any(
            other is None or not other.here or (other.register and other.register.memory.newest != self.cycle)
            for other in others
        ):
            reason = f"{member.node.name} knows of cycle {self.cycle}, begun by a former coordinator"
            self._restart(reason, charged=False, now=now)

    def _welcome_active(self, message: messages.Register, member: Member, now: float) -> None:
        """An active node's connection, agent or coordinator is new: go by what it says of the running cycle."""
        assert self.cycle is not None
        memory, name = message.memory, member.node.name
        failure = memory.failures[0] if memory.failures else None
        if memory.succeeded == self.cycle:
            self._go_on(member, now)
            self._succeeded(member, now)
        elif message.running == self.cycle:
            if failure is not None:
                self._restart(f"{name}: {failure}", charged=True, now=now)
            if self.phase is Phase.STOPPING:
                self._lead.mail(member, self._stop())
            else:
                self._go_on(member, now)
        elif message.running is not None:
            self._stand_by(member, now, watch=False)
            self._restart(f"{name} still runs cycle {message.running}", charged=True, now=now)
        elif self.cycle.term == self._term and (memory.newest is None or memory.newest < self.cycle):
            self._run_or_stop(member, now)
        else:
            if self.phase is Phase.RUNNING:
                charged = memory.newest == self.cycle
                why = failure or ("its workers are gone" if charged else f"it never ran cycle {self.cycle}")
                self._restart(f"{name}: {why}", charged=charged, now=now)
            self._stand_by(member, now)
            self._stopped(member, now)

    def _run_or_stop(self, member: Member, now: float) -> None:
        """It said this before it heard of our Run, which may still reach it; or the Run is lost."""
        assert self.cycle is not None
        if self.phase is Phase.RUNNING:
            self._run(member, fold(self.group), self.group.index(member.node.infra_rank), now)
        else:
            member.running, member.cycle = True, self.cycle
            self._lead.mail(member, self._stop())

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
        if self.active(member) and message.infra_rank in self._pending:  # unasked: word of why was lost
            self._restart(f"{member.node.name} stopped its workers", charged=True, now=now)
        self._stopped(member, now)

    def _hear_active(
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
                    node = member.node.name
                    self._lead.log("worker_failed", "warning", node=node, cycle=self.cycle, failure=str(failure))
                if self.phase is Phase.RUNNING:
                    first = f"{member.node.name}: {failures[0]}" if failures else f"{member.node.name}: workers failed"
                    self._restart(first, charged=True, now=now, patient=policy.told_to_end(failures))

    def _succeeded(self, member: Member, now: float) -> None:
        member.stopped()
        self._pending.discard(member.node.infra_rank)
        if self.phase is Phase.RUNNING and not self._pending:
            self._lead.conclude(Outcome.SUCCESS, f"all workers of cycle {self.cycle} exited with 0")
        else:
            self.advance(now)

    def _stopped(self, member: Member, now: float) -> None:
        member.stopped()
        self.advance(now)

    def missing(self, member: Member, reason: str, *, charged: bool, now: float) -> None:
        """A node can run nothing any more."""
        if self.phase is Phase.RUNNING and member.node.infra_rank in self._pending:
            self._restart(reason, charged=charged, now=now)
        self.advance(now)

    # -- what is said to them

    def _stand_by(self, member: Member, now: float, *, watch: bool = True) -> None:
        cycle = self.cycle if watch else None
        self._lead.mail(member, messages.Standby(self._term, cycle, self._used, self._lead.age(now)))

    def _go_on(self, member: Member, now: float) -> None:
        assert self.cycle is not None
        self._lead.mail(member, messages.Continue(self._term, self.cycle, self._used, self._lead.age(now)))

    def _stop(self) -> messages.Stop:
        assert self.cycle is not None
        return messages.Stop(self._term, self.cycle, fold(self.group))

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
            used=self._used,
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
            self._lead.conclude(
                Outcome.INTERRUPTED, f"too few nodes: {here} of {self.job.active} came within {timeouts.join:g} s"
            )
        elif self.phase is Phase.STOPPING:
            self._watch_stopping(now)

    def _watch_stopping(self, now: float) -> None:
        timeouts = self.job.timeouts
        running = self._members.running()
        if self._suspects and now - self._since >= timeouts.probe:
            names = self._names(sorted(self._suspects & running))
            if names:
                self._lead.log("suspect", "warning", nodes=names, reason=f"no answer within {timeouts.probe:g} s")
            self._suspects.clear()
        bound = timeouts.restart_grace + KILL_BOUND + timeouts.node_lost + STOP_MARGIN
        if running and now - self._since >= bound:
            self._lead.conclude(
                Outcome.INTERRUPTED, f"{self._names(sorted(running))} did not stop its workers within {bound:g} s"
            )

    # -- cycles

    def advance(self, now: float) -> None:
        """Begin a cycle when nothing stands in its way."""
        if self.phase is Phase.JOINING:
            self._begin_when_enough(now)
        elif self.phase is Phase.STOPPING and self._held is not None:
            if now - self._since >= self.job.timeouts.probe:
                self._lead.conclude(self._held.outcome, self._held.reason)
        elif self.phase is Phase.STOPPING and not self._members.anybody_runs() and self._lead.may_start(now):
            healthy = self._eligible(now)
            group = placement.replace(self.group, healthy, self._members.domains())
            if group is not None:
                self._start(group, self._reason, now)
            else:
                self._too_few(len(healthy), now)

    def _begin_when_enough(self, now: float) -> None:
        timeouts = self.job.timeouts
        healthy = self._eligible(now)
        if len(healthy) < self.job.active or self._members.anybody_runs():
            self._enough_since = None
            return
        self._enough_since = now if self._enough_since is None else self._enough_since
        waited = now - self._enough_since >= timeouts.node_lost or now - self._since >= timeouts.join
        if (waited or len(healthy) == len(self.job.nodes)) and self._lead.may_start(now):
            group = placement.first(healthy, self.job.active)
            assert group is not None
            self._start(group, "enough nodes are here", now)

    def _eligible(self, now: float) -> set[int]:
        """Who can be chosen: healthy, and a member whom a successor would certainly ask."""
        return self._members.healthy(now, self.job.timeouts.coordinator) & self._lead.eligible()

    def _too_few(self, healthy: int, now: float) -> None:
        """Give up, but only after a last chance for a node whose agent is just being replaced."""
        timeouts = self.job.timeouts
        coming = self._members.healthy(now, timeouts.coordinator) - self._lead.eligible()
        if coming or self._members.undecided(now, timeouts.coordinator):
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
            self._lead.log("too_few_nodes", "warning", healthy=healthy, needed=self.job.active)
        elif now - self._short_since >= timeouts.node_lost:
            reason = f"too few nodes: {healthy} of {self.job.active} are left; {self._reason}"
            self._lead.conclude(Outcome.INTERRUPTED, reason)

    def _start(self, group: tuple[int, ...], reason: str, now: float) -> None:
        former = self.group
        self.cycle = Cycle(self._term, self.cycle.n + 1 if self.cycle else 0)
        self.group, self.phase, self._short_since = group, Phase.RUNNING, None
        self._pending = set(group)
        self._master = self._members[group[0]].node.addr, self._members[group[0]].port
        new = [node for node in group if node not in former] if former else list(group)
        self._lead.log("cycle_started", cycle=self.cycle, nodes=len(group), new=self._names(new) or None, reason=reason)
        for node in sorted(set(former) - set(group)):
            successor = self._members[group[former.index(node)]].node
            self._lead.log(
                "promoted", node=successor.name, instead_of=self.job.nodes[node], group_rank=former.index(node)
            )
        folded = fold(group)
        for group_rank, node in enumerate(group):
            self._run(self._members[node], folded, group_rank, now)
        for member in self._members:
            if member.registered and member.node.infra_rank not in self._pending:
                self._stand_by(member, now)

    def _restart(self, reason: str, *, charged: bool, now: float, patient: bool = False) -> None:
        """Stop the running cycle; the next begins when all have stopped. With the budget spent the job ends instead,
        if `patient` only after `probe`: should a Leaving follow, it was cancelled."""
        if self.phase is not Phase.RUNNING:
            return
        assert self.cycle is not None
        decision = policy.decide(reason, charged=charged, used=self._used, max_restarts=self.job.max_restarts)
        self._used = decision.used
        if decision.verdict is not None and not patient:
            self._lead.conclude(decision.verdict.outcome, decision.verdict.reason)
            return
        self.phase, self._since, self._reason, self._held = Phase.STOPPING, now, reason, decision.verdict
        running = self._members.running()
        self._suspects = running & set(self.group)
        self._lead.log(
            "restart", "warning", cycle=self.cycle, reason=reason, used=self._used, budget=self.job.max_restarts
        )
        stop = self._stop()
        for node in sorted(self._suspects):
            if self._members[node].registered:
                self._lead.mail(self._members[node], stop)

    def _names(self, nodes: list[int], limit: int = 8) -> str:
        more = f" and {len(nodes) - limit} more" if len(nodes) > limit else ""
        return ",".join(self.job.nodes[node] for node in nodes[:limit]) + more

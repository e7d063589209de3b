"""The coordinator: who is in charge, who trains, when a new cycle begins, and how the job ends.

    phase      what it waits for                                       then
    CANDIDATE  Registers of a majority of the members                  Prepare to all: PREPARING
    PREPARING  promises of a majority                                  in charge, from what they say: JOINING, RUNNING
    JOINING    all nodes, or enough of them for node_lost              a cycle: RUNNING
    RUNNING    WorkersSucceeded of every active node                   verdict success: CLOSING
               a failure, a lost active node, a replaced agent         Stop to the active ones: STOPPING
    STOPPING   everybody stopped or lost                               a cycle: RUNNING; too few nodes: CLOSING
    CLOSING    the verdict kept by a majority, its file, the key,      leaves
               every member's Goodbye, bounded

From any phase but a decided CLOSING it is a CANDIDATE again when it stood still for longer than the fence, or hears of
a promise to somebody else. What is in charge decides only while it can prove that a majority is with it (core.lease).
"""

from __future__ import annotations

from enum import StrEnum

from ft_supervisor.core import messages, orders, placement, policy
from ft_supervisor.core.actions import CoordinatorAction, Leave, LookForVerdict, Mail, Pulse, Tell, log
from ft_supervisor.core.closing import Closing
from ft_supervisor.core.election import Election
from ft_supervisor.core.events import CoordinatorEvent, Ended, Heard, Received, Recorded, Tick
from ft_supervisor.core.lease import Proof
from ft_supervisor.core.members import Member, Members
from ft_supervisor.core.model import (
    KILL_BOUND,
    NO_PROMISE,
    Cycle,
    Job,
    Memory,
    Node,
    Outcome,
    Roster,
    Verdict,
    one_line,
)
from ft_supervisor.core.ranks import fold, unfold
from ft_supervisor.core.roster import first_candidate, first_term
from ft_supervisor.core.rosterchange import RosterChange

STOP_MARGIN = 10.0
"""Seconds beyond grace and kill until a node that can't end its workers ends the job."""

PROOF_AGE = 2
"""Times timeouts.coordinator: how old the proof of a majority may be that a decision rests on."""


class Phase(StrEnum):
    """Where the job is, for this coordinator."""

    CANDIDATE = "candidate"
    PREPARING = "preparing"
    JOINING = "joining"
    RUNNING = "running"
    STOPPING = "stopping"
    CLOSING = "closing"


class CoordinatorMachine:
    """Pure: `handle` takes what happened and returns what to do. All times in seconds."""

    def __init__(self, job: Job, node: Node, incarnation: int, memory: Memory, now: float) -> None:
        self.job = job
        self.node = node
        self.phase = Phase.CANDIDATE
        self.cycle: Cycle | None = None
        self.group: tuple[int, ...] = ()
        self.members = Members()
        self._election = Election(job, node.infra_rank, memory)
        self._rosters = RosterChange(self._election.roster)
        self._proof = Proof()
        self._proved: float | None = None
        self._led = False
        self._closing = Closing()
        self._used = 0
        self._pending: set[int] = set()
        self._master = ("", 0)
        self._since = now
        self._reason = ""
        self._held: Verdict | None = None
        self._enough_since: float | None = None
        self._short_since: float | None = None
        self._suspects: set[int] = set()
        self._last_tick = now
        self._actions: list[CoordinatorAction] = []
        if incarnation == 1 and node.infra_rank == first_candidate(job) and memory.promise == NO_PROMISE:
            self._election.term = first_term(job)
            self._rosters.begin()
            self.phase = Phase.JOINING

    @property
    def term(self) -> int | None:
        """The term in which it is in charge; None when it is not."""
        return None if self.phase in (Phase.CANDIDATE, Phase.PREPARING) else self._election.term

    @property
    def verdict(self) -> Verdict | None:
        """The job's, once that is certain."""
        return self._closing.verdict

    def handle(self, event: CoordinatorEvent, now: float) -> list[CoordinatorAction]:
        """One event in, actions out, in order."""
        self._actions = []
        match event:
            case Received(message):
                self._receive(message, now)
            case Heard(echoes):
                for infra_rank, round_ in echoes:
                    self.members.heard(infra_rank, now)
                    self._proof.echo(infra_rank, round_)
            case Recorded(verdict):
                self._do(self._closing.recorded(verdict))
            case Ended(verdict):
                self._ended(verdict, now)
            case Tick():
                self._tick(now)
        return self._actions

    # -- coming to be in charge

    def _register(self, message: messages.Register, now: float) -> None:
        member = self.members.register(message, now)
        if member is None:
            return
        self._proof.echo(message.infra_rank, message.round)
        self._election.hear(message)
        if self._closing.closed:
            assert self.verdict is not None
            self._mail(member, messages.Close(self._election.term or 0, self.verdict))
        elif self.phase is Phase.CANDIDATE:
            self._campaign(now)
        elif message.term == self._election.term:
            self._hear_promise(message, member, now)
        elif self._election.is_above(message.term):
            self._mail(member, messages.Prepare(self._election.term or 0))
        else:
            self._step_down(f"{member.node.name} has promised term {message.term}")
            self._campaign(now)

    def _hear_promise(self, message: messages.Register, member: Member, now: float) -> None:
        if self._election.asked_at is not None:
            self._proof.promise(message.infra_rank, self._election.asked_at)
        if self.phase is not Phase.PREPARING:
            self._welcome(message, member, now)
        elif self._election.promise(message):
            self._take_charge(now)

    def _campaign(self, now: float) -> None:
        """Ask for promises, if a majority is here."""
        if self.phase is not Phase.CANDIDATE or 2 * len(self.members) < len(unfold(self._election.roster.members)):
            return  # without counting: 1,000 Registers shall not cost 1,000 squared
        present = self.members.present(now, self.job.timeouts.coordinator)
        if not self._election.may_ask(present):
            return
        term = self._election.ask(now)
        self.phase = Phase.PREPARING
        self._log("preparing", term=term, nodes=len(present))
        for infra_rank in sorted(present):
            self._mail(self.members[infra_rank], messages.Prepare(term))

    def _take_charge(self, now: float) -> None:
        """Go on from what the majority says. Members who have said nothing may be running anything."""
        election = self._election
        assert election.term is not None
        self.phase, self._since, self._reason = Phase.JOINING, now, "takeover"
        self._held = self._enough_since = self._short_since = None
        self._suspects = set()
        self._log("in_charge", term=election.term, promises=len(election.promises), takeover=True)
        known, self.members = self.members, Members()
        self._rosters = RosterChange(election.roster)
        for infra_rank in unfold(election.roster.members):
            self.members.expect(known[infra_rank].node if known.get(infra_rank) else self._unknown(infra_rank), now)
        for message in election.promises.values():
            self.members.register(message, now)
        memories = [message.memory for message in election.promises.values()]
        self._used = max(memory.used for memory in memories)
        newest = max(memories, key=lambda memory: memory.newest or Cycle(-1, -1))
        self.cycle, self.group = newest.newest, unfold(newest.group)
        if self.cycle is not None:
            self.phase, self._pending = Phase.RUNNING, set(self.group)
        self._spread(self._rosters.take_over(election.term))
        self._pulse(now)
        self._do(LookForVerdict())
        accepted = max((memory.accepted for memory in memories if memory.accepted), key=lambda a: a.term, default=None)
        if accepted is not None:  # it may have been the job's verdict already
            self.phase = Phase.CLOSING
            self._closing.propose(accepted.verdict)
        for message in election.promises.values():
            self._welcome(message, self.members[message.infra_rank], now)
        if gone := [rank for rank in self.group if self.members.get(rank) is None]:
            self._restart(f"{self._names(gone)} was given up by the former coordinator", charged=False, now=now)

    def _unknown(self, infra_rank: int) -> Node:
        return Node(infra_rank, self.job.nodes[infra_rank], "")

    def _step_down(self, reason: str) -> None:
        if self._closing.verdict is None:
            if self.term is not None:
                self._log("stepped_down", "warning", term=self.term, reason=reason)
                self._election.roster = self._rosters.roster
            self.phase, self._closing = Phase.CANDIDATE, Closing()

    # -- messages

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        known = 0 <= message.infra_rank < len(self.job.nodes)
        if known and isinstance(message, messages.Register):
            self._register(message, now)
            return
        if not known or message.term != self.term or isinstance(message, messages.Register):
            name = type(message).__name__
            self._log("message_dropped", "warning", message=name, node=message.infra_rank, term=message.term)
            return
        member = self.members.get(message.infra_rank)
        if member is None or member.incarnation != message.incarnation or member.gone:
            return
        member.heard = now
        match message:
            case messages.RosterKept(stamp=stamp):
                self._kept(member, stamp, now)
            case messages.VerdictKept():
                self._do(self._closing.keep(message.infra_rank, self._rosters.roster, self._lost_names()))
            case messages.Goodbye(verdict=verdict):
                self._goodbye(member, verdict, now)
            case messages.Leaving(reason=reason):
                self._conclude(Outcome.CANCELLED, f"{member.node.name} was told to end: {reason}")
            case messages.WorkersStopped(cycle=cycle, port=port):
                member.port = port
                if member.cycle is None or cycle >= member.cycle:
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

    def _welcome(self, message: messages.Register, member: Member, now: float) -> None:
        """A node that has promised our term, and all that it knows."""
        assert self.term is not None
        memory, roster = message.memory, self._rosters.roster
        self._log("registered", node=member.node.name, infra_rank=message.infra_rank, incarnation=message.incarnation)
        if memory.roster == roster:
            self._kept(member, roster.stamp, now)
        elif roster.number or roster.term >= 0:  # all know the first one
            self._mail(member, messages.Members(self.term, roster))
        if memory.verdict is not None:
            self._settle(memory.verdict)
        if (verdict := self.verdict or self._closing.proposal) is not None:
            self._mail(member, messages.Propose(self.term, verdict))
            return
        if memory.newest is not None and memory.newest > (self.cycle or Cycle(-1, -1)):
            self._learn_cycle(memory, member, now)
        if self._active(member):
            self._register_active(message, member, now)
        else:
            self._stand_by(member, now)
            # While some are missing, only ticks look whether enough are here: 1,000 joins shall not cost 1,000 squared.
            if self.phase is not Phase.JOINING or len(self.members) == len(self.job.nodes):
                self._advance(now)

    def _learn_cycle(self, memory: Memory, member: Member, now: float) -> None:
        """A former coordinator began it and reached only nodes that had not yet told us."""
        self.cycle, self.group = memory.newest, unfold(memory.group)
        self.phase, self._pending = Phase.RUNNING, set(self.group)
        reason = f"{member.node.name} knows of cycle {self.cycle}, begun by a former coordinator"
        self._restart(reason, charged=False, now=now)

    def _register_active(self, message: messages.Register, member: Member, now: float) -> None:
        """An active node's connection, agent or coordinator is new: go by what it says of the running cycle."""
        assert self.cycle is not None and self.term is not None
        memory, name = message.memory, member.node.name
        failure = memory.failures[0] if memory.failures else None
        if memory.succeeded == self.cycle:
            self._go_on(member, now)
            self._succeeded(member, now)
        elif message.running == self.cycle:
            if failure is not None:
                self._restart(f"{name}: {failure}", charged=True, now=now)
            if self.phase is Phase.STOPPING:
                self._mail(member, messages.Stop(self.term, self.cycle))
            else:
                self._go_on(member, now)
        elif message.running is not None:
            self._stand_by(member, now, watch=False)
            self._restart(f"{name} still runs cycle {message.running}", charged=True, now=now)
        elif (
            self.phase is Phase.RUNNING
            and self.cycle.term == self.term
            and (memory.newest is None or memory.newest < self.cycle)
        ):
            self._run(member, self.group.index(message.infra_rank), now)
        else:
            if self.phase is Phase.RUNNING:
                charged = memory.newest == self.cycle
                why = failure or ("its workers are gone" if charged else f"it never ran cycle {self.cycle}")
                self._restart(f"{name}: {why}", charged=charged, now=now)
            self._stand_by(member, now)
            self._stopped(member, now)

    def _stand_by(self, member: Member, now: float, *, watch: bool = True) -> None:
        assert self.term is not None
        cycle = self.cycle if watch else None
        self._mail(member, messages.Standby(self.term, cycle, self._used, self._age(now)))

    def _go_on(self, member: Member, now: float) -> None:
        assert self.term is not None and self.cycle is not None
        self._mail(member, messages.Continue(self.term, self.cycle, self._used, self._age(now)))

    def _succeeded(self, member: Member, now: float) -> None:
        member.stopped()
        self._pending.discard(member.node.infra_rank)
        if self.phase is Phase.RUNNING and not self._pending:
            self._conclude(Outcome.SUCCESS, f"all workers of cycle {self.cycle} exited with 0")
        else:
            self._advance(now)

    def _stopped(self, member: Member, now: float) -> None:
        member.stopped()
        self._advance(now)

    def _goodbye(self, member: Member, verdict: Verdict | None, now: float) -> None:
        member.gone = True
        member.stopped()
        if verdict is not None:
            self._settle(verdict)
        if self.phase is Phase.CLOSING:
            self._leave_when_done(now)
        else:
            self._missing(member, f"{member.node.name} left", charged=False, now=now)

    # -- time

    def _tick(self, now: float) -> None:
        timeouts = self.job.timeouts
        late = now - self._last_tick - 2 * timeouts.heartbeat
        stalled = now - self._last_tick > timeouts.fence
        self._last_tick = now
        if late > 0:
            self._late(late, stalled, now)
        self._do(Tell(orders.Alive(self.phase.value, str(self.cycle or ""))))
        self._pulse(now)
        if self.phase is Phase.CANDIDATE or (self.phase is Phase.PREPARING and self._election.is_over(now)):
            self.phase = Phase.CANDIDATE
            self._campaign(now)
        elif self.phase is Phase.CLOSING:
            self._lose_silent(now)
            self._leave_when_done(now)
        elif self.phase is not Phase.PREPARING and self._has_majority(now):
            self._lose_silent(now)
            self._advance(now)
            self._look_at_clock(now)
            self._change_roster()

    def _late(self, seconds: float, stalled: bool, now: float) -> None:
        """Time in which we stood still counts against nobody; after too much of it, others may be in charge."""
        self._log("tick_late", "warning", seconds=round(seconds, 1))
        self.members.forgive(seconds, now)
        if stalled and self.term is not None:
            self._step_down(f"stood still for {seconds:.1f} s")

    def _pulse(self, now: float) -> None:
        self._proof_now()
        lease = self._proof.lease(self._rosters.roster) if self.term is not None else 0
        self._do(Pulse(self._proof.publish(now), self.term, lease))

    def _lose_silent(self, now: float) -> None:
        for member in list(self.members):
            if member.here and now - member.heard >= self.job.timeouts.node_lost:
                self._lose(member, now)

    def _look_at_clock(self, now: float) -> None:
        timeouts = self.job.timeouts
        if self.phase is Phase.JOINING and now - self._since >= timeouts.join:
            here = sum(member.here for member in self.members)
            self._conclude(
                Outcome.INTERRUPTED, f"too few nodes: {here} of {self.job.active} came within {timeouts.join:g} s"
            )
        elif self.phase is Phase.STOPPING:
            self._watch_stopping(now)

    def _watch_stopping(self, now: float) -> None:
        timeouts = self.job.timeouts
        running = self.members.running()
        if self._suspects and now - self._since >= timeouts.probe:
            names = self._names(sorted(self._suspects & running))
            if names:
                self._log("suspect", "warning", nodes=names, reason=f"no answer within {timeouts.probe:g} s")
            self._suspects.clear()
        bound = timeouts.restart_grace + KILL_BOUND + timeouts.node_lost + STOP_MARGIN
        if running and now - self._since >= bound:
            self._conclude(
                Outcome.INTERRUPTED, f"{self._names(sorted(running))} did not stop its workers within {bound:g} s"
            )

    def _lose(self, member: Member, now: float) -> None:
        member.lost = True
        member.stopped()  # its fence has ended whatever ran there (core.lease)
        member.times_lost += 1
        reason = f"{member.node.name} was not heard for {self.job.timeouts.node_lost:g} s"
        self._log("node_lost", "warning", node=member.node.name, reason=reason)
        self._missing(member, reason, charged=member.times_lost > 1, now=now)

    def _missing(self, member: Member, reason: str, *, charged: bool, now: float) -> None:
        """A node can run nothing any more."""
        if self.phase is Phase.RUNNING and member.node.infra_rank in self._pending:
            self._restart(reason, charged=charged, now=now)
        self._advance(now)

    # -- the majority

    def _proof_now(self) -> None:
        self._proved = self._proof.since(self._rosters.roster)

    def _age(self, now: float) -> float | None:
        return None if self._proved is None else now - self._proved

    def _in_majority(self, now: float) -> bool:
        """Whether a majority was certainly with us just now."""
        bound = PROOF_AGE * self.job.timeouts.coordinator
        if self._proved is None or now - self._proved >= bound:
            self._proof_now()
        return self._proved is not None and now - self._proved < bound

    def _has_majority(self, now: float) -> bool:
        """The same, for the log too."""
        had, self._led = self._led, self._in_majority(now)
        if had and not self._led:
            self._log("majority_lost", "warning", members=self._rosters.roster.members)
        elif self._led and not had:
            self._log("majority", term=self.term, members=self._rosters.roster.members)
        return self._led

    def _change_roster(self) -> None:
        """Lost members off the list, new ones on it."""
        if self.term is None or self.phase not in (Phase.RUNNING, Phase.STOPPING) or self._rosters.pending:
            return
        listed = unfold(self._rosters.roster.members)
        here = {member.node.infra_rank for member in self.members if member.here}
        members = [rank for rank in listed if rank in here] + sorted(here - set(listed))
        roster = self._rosters.change(self.term, members) if members else None
        if roster is not None:
            self._spread(roster)

    def _spread(self, roster: Roster) -> None:
        assert self._election.term is not None
        self._log("members", number=roster.number, members=roster.members, former=roster.former or None)
        for member in self.members:
            if member.registered:
                self._mail(member, messages.Members(self._election.term, roster))

    def _kept(self, member: Member, stamp: tuple[int, int], now: float) -> None:
        pending = self._rosters.pending
        following = self._rosters.keep(member.node.infra_rank, stamp)
        if following is not None:
            self._spread(following)
        if following is not None or self._rosters.pending != pending:
            self._advance(now)

    # -- cycles

    def _advance(self, now: float) -> None:
        """Begin a cycle when nothing stands in its way."""
        if self.phase is Phase.JOINING:
            self._begin_when_enough(now)
        elif self.phase is Phase.STOPPING and self._held is not None:
            if now - self._since >= self.job.timeouts.probe:
                self._conclude(self._held.outcome, self._held.reason)
        elif self.phase is Phase.STOPPING and not self.members.anybody_runs() and self._in_majority(now):
            healthy = self._eligible(now)
            group = placement.replace(self.group, healthy, self.members.domains())
            if group is not None:
                self._start(group, self._reason, now)
            else:
                self._too_few(len(healthy), now)

    def _begin_when_enough(self, now: float) -> None:
        timeouts = self.job.timeouts
        healthy = self._eligible(now)
        if len(healthy) < self.job.active or self.members.anybody_runs():
            self._enough_since = None
            return
        self._enough_since = now if self._enough_since is None else self._enough_since
        waited = now - self._enough_since >= timeouts.node_lost or now - self._since >= timeouts.join
        if (waited or len(healthy) == len(self.job.nodes)) and self._in_majority(now):
            group = placement.first(healthy, self.job.active)
            assert group is not None
            self._start(group, "enough nodes are here", now)

    def _eligible(self, now: float) -> set[int]:
        """Who can be chosen: healthy, and a member whom a successor would certainly ask."""
        return self.members.healthy(now, self.job.timeouts.coordinator) & self._rosters.eligible

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

    def _start(self, group: tuple[int, ...], reason: str, now: float) -> None:
        assert self.term is not None
        former = self.group
        self.cycle = Cycle(self.term, self.cycle.n + 1 if self.cycle else 0)
        self.group, self.phase, self._short_since = group, Phase.RUNNING, None
        self._pending = set(group)
        self._master = self.members[group[0]].node.addr, self.members[group[0]].port
        new = [node for node in group if node not in former] if former else list(group)
        self._log("cycle_started", cycle=self.cycle, nodes=len(group), new=self._names(new) or None, reason=reason)
        for node in sorted(set(former) - set(group)):
            successor = self.members[group[former.index(node)]].node
            self._log("promoted", node=successor.name, instead_of=self.job.nodes[node], group_rank=former.index(node))
        self._proof_now()
        for group_rank, node in enumerate(group):
            self._run(self.members[node], group_rank, now)
        for member in self.members:
            if member.registered and member.node.infra_rank not in self._pending:
                self._stand_by(member, now)

    def _run(self, member: Member, group_rank: int, now: float) -> None:
        assert self.cycle is not None and self.term is not None
        member.running, member.cycle = True, self.cycle
        run = messages.Run(
            term=self.term,
            cycle=self.cycle,
            group=fold(self.group),
            group_rank=group_rank,
            group_world_size=len(self.group),
            restart_count=self.cycle.n,
            max_restarts=max(self.job.max_restarts, self.cycle.n),
            master_addr=self._master[0],
            master_port=self._master[1],
            used=self._used,
            age=self._age(now) or 0.0,
        )
        self._mail(member, run)

    def _restart(self, reason: str, *, charged: bool, now: float, patient: bool = False) -> None:
        """Stop the running cycle; the next begins when all have stopped. With the budget spent the job ends instead,
        if `patient` only after `probe`: should a Leaving follow, it was cancelled."""
        if self.phase is not Phase.RUNNING:
            return
        assert self.cycle is not None and self.term is not None
        decision = policy.decide(reason, charged=charged, used=self._used, max_restarts=self.job.max_restarts)
        self._used = decision.used
        if decision.verdict is not None and not patient:
            self._conclude(decision.verdict.outcome, decision.verdict.reason)
            return
        self.phase, self._since, self._reason, self._held = Phase.STOPPING, now, reason, decision.verdict
        running = self.members.running()
        self._suspects = running & set(self.group)
        self._log("restart", "warning", cycle=self.cycle, reason=reason, used=self._used, budget=self.job.max_restarts)
        for node in sorted(self._suspects):
            if self.members[node].registered:
                self._mail(self.members[node], messages.Stop(self.term, self.cycle))

    # -- the end

    def _conclude(self, outcome: Outcome, reason: str) -> None:
        """Propose a verdict; it is the job's once a majority keeps it."""
        if self.phase is not Phase.CLOSING:
            self._propose(Verdict(outcome, one_line(reason)))

    def _propose(self, verdict: Verdict) -> None:
        assert self._election.term is not None
        self.phase = Phase.CLOSING
        self._closing.propose(verdict)
        self._log("proposed", outcome=verdict.outcome.value, reason=verdict.reason)
        for member in self.members:
            if member.registered:
                self._mail(member, messages.Propose(self._election.term, verdict))

    def _settle(self, verdict: Verdict) -> None:
        """This is the job's verdict, whoever says so."""
        if self.term is not None:
            self.phase = Phase.CLOSING
        self._do(self._closing.settle(verdict, self._lost_names()))

    def _ended(self, verdict: Verdict, now: float) -> None:
        """The key or the file holds this verdict."""
        if not self._closing.claimed:
            self._settle(verdict)
        elif not self._closing.closed:
            self.phase, self._since = Phase.CLOSING, now
            self._closing.close(verdict)
            self._log("verdict", outcome=verdict.outcome.value, code=verdict.exit_code, reason=verdict.reason)
            for member in self.members:
                if member.registered:
                    self._mail(member, messages.Close(self._election.term or 0, verdict))
            self._leave_when_done(now)

    def _leave_when_done(self, now: float) -> None:
        if not self._closing.closed or self.verdict is None:
            return
        timeouts = self.job.timeouts
        bound = timeouts.close_grace
        if self.verdict.outcome is not Outcome.SUCCESS:
            bound += timeouts.stop_grace + KILL_BOUND
        if now - self._since >= bound or not any(member.registered for member in self.members):
            self._do(Tell(orders.Closed(self.verdict, self._lost_names())))
            self._do(Leave(self.verdict.exit_code, self.verdict, self.verdict.reason))

    # -- small things

    def _active(self, member: Member) -> bool:
        return self.phase in (Phase.RUNNING, Phase.STOPPING) and member.node.infra_rank in self.group

    def _lost_names(self) -> tuple[str, ...]:
        """Nodes that are not here any more, and have not said Goodbye."""
        here = {m.node.infra_rank for m in self.members if m.registered or m.gone}
        return tuple(name for infra_rank, name in enumerate(self.job.nodes) if infra_rank not in here)

    def _mail(self, member: Member, message: messages.ToAgent) -> None:
        self._do(Mail(member.node.infra_rank, member.incarnation, member.connection, message))

    def _names(self, nodes: list[int], limit: int = 8) -> str:
        more = f" and {len(nodes) - limit} more" if len(nodes) > limit else ""
        return ",".join(self.job.nodes[node] for node in nodes[:limit]) + more

    def _log(self, event: str, level: str = "info", /, **fields: object) -> None:
        self._do(log(event, level, **fields))

    def _do(self, action: CoordinatorAction | None) -> None:
        if action is not None:
            self._actions.append(action)

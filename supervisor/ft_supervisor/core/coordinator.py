"""The coordinator: who is in charge, who is a member, and how the job ends. Its cycles are in core.cycles.

    role       what it waits for                                       then
    CANDIDATE  Registers of a majority of the members                  Prepare to all: PREPARING
    PREPARING  promises of a majority                                  in charge, from what they say: LEADING
    LEADING    the cycles' conclusion                                  proposes the verdict: CLOSING
    CLOSING    the verdict kept by a majority, its file, the key,      leaves
               every member's Goodbye, bounded

Until a verdict is settled it is a CANDIDATE again when it stood still for longer than the fence, or hears of a promise
to somebody else. What is in charge decides only while it can prove that a majority is with it (core.lease).
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from ft_supervisor.core import messages, orders
from ft_supervisor.core.actions import CoordinatorAction, Leave, LookForVerdict, Mail, Pulse, ReadStep, Tell, log
from ft_supervisor.core.closing import Closing
from ft_supervisor.core.cycles import Cycles
from ft_supervisor.core.election import Election
from ft_supervisor.core.events import (
    CoordinatorEvent,
    Ended,
    Heard,
    Promised,
    Received,
    Recorded,
    SlurmToldUs,
    StepRead,
    Tick,
)
from ft_supervisor.core.interruptions import Interruptions
from ft_supervisor.core.majority import Majority
from ft_supervisor.core.members import Member, Members
from ft_supervisor.core.model import NO_PROMISE, Cycle, Job, Memory, Node, Outcome, Problem, Roster, Verdict
from ft_supervisor.core.plausible import Heights, from_node
from ft_supervisor.core.ranks import fold, unfold
from ft_supervisor.core.refusals import Refusals
from ft_supervisor.core.roster import first_candidate, first_term
from ft_supervisor.core.rosterchange import RosterChange
from ft_supervisor.core.summary import Summary
from ft_supervisor.core.words import one_line


class Role(StrEnum):
    """What this coordinator is."""

    CANDIDATE = "candidate"
    PREPARING = "preparing"
    LEADING = "leading"
    CLOSING = "closing"


class CoordinatorMachine:
    """Pure: `handle` takes what happened and returns what to do. All times in seconds."""

    def __init__(self, job: Job, node: Node, incarnation: int, memory: Memory, now: float, epoch: float = 0.0) -> None:
        self.job = job
        self.node = node
        self.role = Role.CANDIDATE
        self.members = Members()
        self._election = Election(job, node.infra_rank, memory)
        self._rosters = RosterChange(self._election.roster)
        self._majority = Majority(job.timeouts)
        self._led = False
        self._takeovers = 0
        self._cycles_told = 0
        """How many cycles nodes have told of."""
        self._closing = Closing()
        self._deputy: int | None = None
        self._interruptions = Interruptions(job, now)
        self._epoch = epoch
        self._known = Heights().with_(memory)
        self._refusals = Refusals()
        self._early: list[messages.ToCoordinator] = []
        self._last_tick = now
        self._actions: list[CoordinatorAction] = []
        if incarnation == 1 and node.infra_rank == first_candidate(job) and memory.promise == NO_PROMISE:
            self._election.term = first_term(job)
            self._rosters.begin()
            self.role = Role.LEADING
        self._cycles = Cycles(job, self.members, self, self._election.term or 0, now)

    @property
    def term(self) -> int | None:
        """The term in which it is in charge; None when it is not."""
        return None if self.role in (Role.CANDIDATE, Role.PREPARING) else self._election.term

    @property
    def phase(self) -> str:
        """One word for people: the role, of one that leads the phase of its cycles."""
        return self._cycles.phase.value if self.role is Role.LEADING else self.role.value

    @property
    def cycle(self) -> Cycle | None:
        """The newest that it knows of."""
        return self._cycles.cycle

    @property
    def verdict(self) -> Verdict | None:
        """The job's, once that is certain."""
        return self._closing.verdict

    @property
    def proposal(self) -> Verdict | None:
        """The verdict that it has proposed; the job's only once a majority keeps it."""
        return self._closing.proposal

    @property
    def cycles(self) -> Cycles:
        """For whoever shows them: to be looked at only."""
        return self._cycles

    @property
    def roster(self) -> Roster:
        """The members' list that counts here."""
        return self._rosters.roster if self.term is not None else self._election.roster

    @property
    def majority(self) -> bool:
        """Whether it had the majority's proof at its last tick, without which it decides nothing."""
        return self.term is not None and self._led

    @property
    def end_at(self) -> float | None:
        """When Slurm ends the job, by our own clock; None where nobody has said."""
        return self._interruptions.end_at

    @property
    def slurm_away(self) -> bool:
        """Whether Slurm did not answer when it was last asked."""
        return self._interruptions.away

    def handle(self, event: CoordinatorEvent, now: float) -> list[CoordinatorAction]:
        """One event in, actions out, in order."""
        self._actions = []
        match event:
            case Received(message):
                self._receive(message, now)
            case Heard(echoes):
                for infra_rank, round_ in echoes:
                    self._hear_beat(infra_rank, round_, now)
            case Promised(term):
                self._election.promised(term)
            case Recorded(verdict):
                self._do(self._closing.recorded(verdict))
            case StepRead(step):
                if self.role is Role.LEADING:
                    self._cycles.step_read(step, now)
            case SlurmToldUs(said):
                self._hear_slurm(said, now)
            case Ended(verdict):
                self._ended(verdict, now)
            case Tick():
                self._tick(now)
        return self._actions

    def _hear_beat(self, infra_rank: int, round_: int, now: float) -> None:
        self._majority.proof.echo(infra_rank, round_)
        member = self.members.get(infra_rank)
        if member is not None:
            member.heard = now
            if member.lost and self.term is not None:  # it does not know, having stood still: it shall register anew
                self._prepare(member)

    # -- coming to be in charge

    def _register(self, message: messages.Register, now: float) -> None:
        member = self.members.register(message, now)
        if member is None:
            return
        self._majority.proof.echo(message.infra_rank, message.round)
        self._election.hear(message)
        self._known = self._known.with_(message.memory)
        if (newest := message.memory.newest) is not None:
            self._cycles_told = max(self._cycles_told, newest.n + 1)
        if self._closing.closed:
            assert self.verdict is not None
            self.mail(member, messages.Close(self._election.term or 0, self.verdict))
        elif self.role is Role.CANDIDATE:
            self._campaign(now)
        elif message.term == self._election.term:
            self._hear_promise(message, member, now)
        elif self._election.is_above(message.term):
            if newest is not None and newest > (self.cycle or Cycle(-1, -1)):
                member.running = True  # or may be: what it knows of that cycle counts with its promise
            self._prepare(member)
        else:
            self._step_down(f"{member.node.name} has promised term {message.term}")
            self._campaign(now)

    def _hear_promise(self, message: messages.Register, member: Member, now: float) -> None:
        answered = member.asked is not None and member.asked == self._election.term
        if answered and self._election.asked_at is not None:
            self._majority.proof.promise(message.infra_rank, self._election.asked_at)
        if self.role is not Role.PREPARING:
            self._welcome(message, member, now)
        elif not answered:  # it had promised this term to a former process of this node
            self._prepare(member)
        elif self._election.promise(message):
            self._take_charge(now)

    def _prepare(self, member: Member) -> None:
        assert self._election.term is not None
        member.asked = self._election.term
        self.mail(member, messages.Prepare(self._election.term))

    def _campaign(self, now: float) -> None:
        """Ask for promises, if a majority is here."""
        if self.role is not Role.CANDIDATE or 2 * len(self.members) < len(unfold(self._election.roster.members)):
            return  # without counting: 1,000 Registers shall not cost 1,000 squared
        present = self.members.present(now, self.job.timeouts.coordinator)
        if not self._election.may_ask(present):
            return
        term = self._election.ask(now)
        self.role, self._early = Role.PREPARING, []
        self.log("preparing", term=term, nodes=len(present))
        for infra_rank in sorted(present):
            self._prepare(self.members[infra_rank])

    def _take_charge(self, now: float) -> None:
        """Go on from what the majority says. Members who have said nothing may be running anything."""
        election = self._election
        assert election.term is not None
        self.role, self._takeovers = Role.LEADING, self._takeovers + 1
        self.log("in_charge", term=election.term, promises=len(election.promises), takeover=True)
        known, self.members = self.members, Members()
        self._rosters = RosterChange(election.roster)
        for infra_rank in unfold(election.roster.members):
            self.members.expect(known[infra_rank].node if known.get(infra_rank) else self._unknown(infra_rank), now)
        for message in election.promises.values():
            self.members.register(message, now)
        memories = [message.memory for message in election.promises.values()]
        self._rosters.take_over(election.term)
        self._majority.look(self._rosters.roster)
        self._pulse(now)
        self._do(LookForVerdict())
        self._cycles = Cycles(self.job, self.members, self, election.term, now)
        accepted = max((memory.accepted for memory in memories if memory.accepted), key=lambda a: a.term, default=None)
        if accepted is not None:  # it may have been the job's verdict already
            self.role = Role.CLOSING
            self._closing.propose(accepted.verdict)
        else:
            self._cycles.adopt(memories, now)
        for message in election.promises.values():
            self._welcome(message, self.members[message.infra_rank], now)
        for word in self._early:  # said after a promise, and before we could act on it
            self._receive(word, now)

    def _unknown(self, infra_rank: int) -> Node:
        return Node(infra_rank, self.job.nodes[infra_rank], "")

    def _step_down(self, reason: str) -> None:
        if self._closing.verdict is None:
            if self.term is not None:
                self.log("stepped_down", "warning", term=self.term, reason=reason)
                self._election.roster = max(self._election.roster, self._rosters.roster, key=lambda r: r.stamp)
            self.role, self._closing = Role.CANDIDATE, Closing()

    # -- messages

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        if wrong := from_node(message, self.job, self._heights()):
            self._drop(message, wrong, now)
            return
        if isinstance(message, messages.Register):
            self._register(message, now)
            return
        if self.role is Role.PREPARING and message.term == self._election.term:
            self._early.append(message)
            return
        if message.term != self.term:
            self._drop(message, None, now)
            return
        member = self.members.get(message.infra_rank)
        if member is None or member.incarnation != message.incarnation or member.gone:
            return
        member.heard = now
        match message:
            case messages.RosterKept(stamp=stamp):
                self._kept(member, stamp, now)
            case messages.VerdictKept():
                if (kept := self._closing.keep(message.infra_rank, self._rosters.roster)) is not None:
                    self._settle(kept)
            case messages.Goodbye(verdict=verdict):
                self._goodbye(member, verdict, now)
            case messages.Unhealthy(problem=problem):
                self._hear_unhealthy(member, problem, now)
            case messages.Leaving(reason=reason):
                self._hear_leaving(member, reason, now)
            case _ if self.role is Role.LEADING:
                self._cycles.hear(message, member, now)

    def _drop(self, message: messages.ToCoordinator, wrong: str | None, now: float) -> None:
        """`wrong`: what cannot be true of it; None if it is merely old."""
        name = type(message).__name__
        if (more := self._refusals.due(f"{name} {wrong}", now)) is not None:
            self.log(
                "message_dropped",
                "warning",
                message=name,
                node=message.infra_rank,
                term=message.term,
                reason=wrong,
                more=more or None,
            )

    def _heights(self) -> Heights:
        """What is known, our own term's cycles included."""
        cycle, ledger, known = self.cycle, self._cycles.ledger, self._known
        return Heights(
            max(known.term, self._election.term or 0),
            max(known.cycle, cycle.n if cycle else 0),
            max(known.entries, ledger.entries),
            max(known.roster, self.roster.number),
        )

    def _hear_unhealthy(self, member: Member, problem: Problem, now: float) -> None:
        if member.problem is None:
            member.problem = problem
            self.log("unhealthy", "warning", node=member.node.name, reason=problem.reason)
        if self.role is Role.LEADING:
            self._cycles.unhealthy(member, problem, now)

    def _hear_leaving(self, member: Member, reason: str, now: float) -> None:
        if self.role is Role.LEADING:
            if verdict := self._interruptions.leave(f"{member.node.name} was told to end: {reason}", now):
                self.conclude(verdict)
            else:
                self._ask_slurm(now)

    def _ask_slurm(self, now: float) -> None:
        if self._interruptions.ask(now):
            self._do(Tell(orders.AskSlurm(self._interruptions.told_to_end)))

    def _hear_slurm(self, said: orders.SlurmSaid, now: float) -> None:
        if news := self._interruptions.hear(said, now):
            self.log("slurm", "warning" if said.problem else "info", reason=news)
        if self.role is Role.LEADING and self.may_decide(now):
            if verdict := self._interruptions.verdict(said, now):
                self.conclude(verdict)
            elif said.draining is not None:
                self._cycles.drain(frozenset(said.draining), now)

    def _welcome(self, message: messages.Register, member: Member, now: float) -> None:
        """A node that has promised our term, and all that it knows."""
        assert self.term is not None
        memory, roster = message.memory, self._rosters.roster
        self.log("registered", node=member.node.name, infra_rank=message.infra_rank, incarnation=message.incarnation)
        if memory.roster == roster:
            self._kept(member, roster.stamp, now)
        elif roster.number or roster.term >= 0:  # all know the first one
            self.mail(member, messages.Members(self.term, roster))
        if memory.verdict is not None:
            self._settle(memory.verdict)
        if (verdict := self.verdict or self._closing.proposal) is not None:
            self._send_proposal(member, verdict)
            return
        if message.told:
            self._hear_leaving(member, message.told, now)
        if self.role is Role.LEADING:
            self._cycles.welcome(message, member, now)

    def _goodbye(self, member: Member, verdict: Verdict | None, now: float) -> None:
        ran, member.gone = member.running, True
        member.stopped()
        if verdict is not None:
            self._settle(verdict)
        if self.role is Role.CLOSING:
            self._leave_when_done(now)
        else:
            self._cycles.missing(member, f"{member.node.name} left", ran=ran, charged=False, now=now)

    # -- time

    def _tick(self, now: float) -> None:
        timeouts = self.job.timeouts
        late = now - self._last_tick - 2 * timeouts.heartbeat
        stalled = now - self._last_tick > timeouts.fence
        self._last_tick = now
        if late > 0:
            self._late(late, stalled, now)
        if self.role is Role.LEADING and self._majority.proof.round == 0:
            self.log("in_charge", term=self.term, takeover=False)
        self._do(Tell(orders.Alive(self.phase, str(self.cycle or ""))))
        self._pulse(now)
        if self.role is Role.CANDIDATE or (self.role is Role.PREPARING and self._election.is_over(now)):
            self.role = Role.CANDIDATE
            self._campaign(now)
        elif self.role is Role.CLOSING:
            self._lose_silent(now)
            self._leave_when_done(now)
        elif self.role is Role.LEADING and self._has_majority(now):
            self._lose_silent(now)
            self._ask_slurm(now)
            if verdict := self._interruptions.verdict(None, now):
                self.conclude(verdict)
            else:
                self._cycles.tick(now)
            self._change_roster()

    def _late(self, seconds: float, stalled: bool, now: float) -> None:
        """Time in which we stood still counts against nobody; after too much of it, others may be in charge, and
        nobody is here any more until heard again."""
        self.log("tick_late", "warning", seconds=round(seconds, 3))
        if not stalled or self.verdict is not None:
            self.members.forgive(seconds, now)
        elif self.term is not None:
            self._step_down(f"stood still for {seconds:.1f} s")

    def _pulse(self, now: float) -> None:
        proof = self._majority.proof
        lease = proof.lease(self._rosters.roster) if self.term is not None else 0
        term = self._election.elsewhere if self.term is None else self.term
        self._do(Pulse(proof.publish(now), term, lease))

    def _lose_silent(self, now: float) -> None:
        for member in list(self.members):
            if member.here and now - member.heard >= self.job.timeouts.node_lost:
                self._lose(member, now)

    def _lose(self, member: Member, now: float) -> None:
        self._majority.lost(member.heard)
        ran, member.lost = member.running, True
        member.stopped()  # its fence has ended whatever ran there (core.lease)
        member.times_lost += 1
        reason = f"{member.node.name} was not heard for {self.job.timeouts.node_lost:g} s"
        self.log("node_lost", "warning", node=member.node.name, reason=reason)
        if self.role is Role.LEADING:
            self._cycles.missing(member, reason, ran=ran, charged=member.times_lost > 1, now=now)

    # -- the majority

    def age(self, now: float) -> float | None:
        """Seconds since a majority was certainly with us; None if it never was."""
        return self._majority.age(now)

    def may_decide(self, now: float) -> bool:
        """Whether a majority was certainly with us just now."""
        return self._majority.is_here(self._rosters.roster, now)

    def may_start(self, now: float) -> bool:
        """The same, and nobody else was in charge since. Nor is anything begun while the job may just be ending."""
        return not self._interruptions.told_to_end and self.may_decide(now) and self._majority.is_alone()

    def read_step(self) -> None:
        """The job's newest checkpoint's; StepRead follows."""
        self._do(ReadStep())

    def wall(self, now: float) -> float:
        """Seconds since the epoch by our clock."""
        return self._epoch + now

    def eligible(self) -> frozenset[int]:
        """The members that a successor would certainly ask."""
        return self._rosters.eligible

    def _has_majority(self, now: float) -> bool:
        """The same, for the log too."""
        had, self._led = self._led, self.may_decide(now)
        if had and not self._led:
            self.log("majority_lost", "warning", members=self._rosters.roster.members)
        elif self._led and not had:
            self.log("majority", term=self.term, members=self._rosters.roster.members)
        return self._led

    def _change_roster(self) -> None:
        """Lost members off the list, new ones on it."""
        if self.term is None or self.role is not Role.LEADING or self.cycle is None or self._rosters.pending:
            return
        listed = unfold(self._rosters.roster.members)
        here = {member.node.infra_rank for member in self.members if member.here}
        members = [rank for rank in listed if rank in here] + sorted(here - set(listed))
        roster = self._rosters.change(self.term, members) if members else None
        if roster is not None:
            self._spread(roster)

    def _spread(self, roster: Roster) -> None:
        assert self._election.term is not None
        self.log("members", number=roster.number, members=roster.members, former=roster.former or None)
        self._mail_all(messages.Members(self._election.term, roster))

    def _kept(self, member: Member, stamp: tuple[int, int], now: float) -> None:
        pending = self._rosters.pending
        following = self._rosters.keep(member.node.infra_rank, stamp)
        if following is not None:
            self._spread(following)
        if self.role is Role.LEADING and (following is not None or self._rosters.pending != pending):
            self._cycles.advance(now)

    # -- the end

    def conclude(self, verdict: Verdict) -> None:
        """Propose it; it is the job's once a majority keeps it.

        A signal that is not explained yet says more than workers, whom it has reached too: they may have ended well
        or badly because of it. Interruptions has a verdict within ASK_BOUND.
        """
        of_workers = verdict.outcome in (Outcome.SUCCESS, Outcome.FAILED)
        if self.role is Role.CLOSING or (of_workers and self._interruptions.told_to_end):
            return
        assert self._election.term is not None
        self.role, verdict = Role.CLOSING, replace(verdict, reason=one_line(verdict.reason))
        self._closing.propose(verdict)
        self.log("proposed", outcome=verdict.outcome.value, reason=verdict.reason)
        self._deputy = self._choose_deputy()
        for member in self.members:
            if member.registered:
                self._send_proposal(member, verdict)

    def _choose_deputy(self) -> int | None:
        """The node that sees to the job's end in Slurm where Slurm did not answer ours: slurmctld may have lost this
        node alone, and taken it out of the job."""
        here = (m.node.infra_rank for m in self.members if m.registered and m.node.infra_rank != self.node.infra_rank)
        return min(here, default=None) if self._interruptions.away else None

    def _send_proposal(self, member: Member, verdict: Verdict) -> None:
        assert self._election.term is not None
        deputy = member.node.infra_rank == self._deputy
        self.mail(member, messages.Propose(self._election.term, verdict, deputy))

    def _settle(self, verdict: Verdict) -> None:
        """This is the job's verdict, whoever says so."""
        if self.term is not None:
            self.role = Role.CLOSING
        self._do(self._closing.settle(verdict, self._lost(), self._summary()))

    def _ended(self, verdict: Verdict, now: float) -> None:
        """The key or the file holds this verdict."""
        if not self._closing.claimed:
            self._settle(verdict)
        elif not self._closing.closed:
            self.role = Role.CLOSING
            self._closing.close(verdict, now)
            self.log("verdict", outcome=verdict.outcome.value, code=verdict.exit_code, reason=verdict.reason)
            self._mail_all(messages.Close(self._election.term or 0, verdict))
            self._leave_when_done(now)

    def _leave_when_done(self, now: float) -> None:
        if not self._closing.closed or self.verdict is None:
            return
        if self._closing.is_over(self.job, now) or not any(member.registered for member in self.members):
            self._do(Tell(orders.Closed(self.verdict, self._lost(), self._closing.summary)))
            self._do(Leave(self.verdict.exit_code, self.verdict, self.verdict.reason))

    # -- small things

    def _summary(self) -> Summary:
        """The job's story, as far as this coordinator knows it: of cycles before its term only how many there were."""
        cycles = max(self._cycles_told, self.cycle.n + 1 if self.cycle else 0)
        return self._cycles.tally.summary(cycles, self._takeovers)

    def _lost(self) -> str:
        """The infra_ranks of nodes that are not here any more, and have not said Goodbye; folded."""
        here = {m.node.infra_rank for m in self.members if m.registered or m.gone}
        return fold(rank for rank in range(len(self.job.nodes)) if rank not in here)

    def mail(self, member: Member, message: messages.ToAgent) -> None:
        """Into the queue of its newest connection."""
        self._do(Mail(member.node.infra_rank, member.incarnation, member.connection, message))

    def _mail_all(self, message: messages.ToAgent) -> None:
        for member in self.members:
            if member.registered:
                self.mail(member, message)

    def log(self, event: str, level: str = "info", /, **fields: object) -> None:
        """One line."""
        self._do(log(event, level, **fields))

    def _do(self, action: CoordinatorAction | None) -> None:
        if action is not None:
            self._actions.append(action)

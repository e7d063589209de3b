"""The coordinator's machine: takes each event to the part that it concerns, and sees to the job's verdict.

    leadership.py       role, members, majority: whether this coordinator is in charge. Begin there to follow a takeover
    cycles.py           the training, while this coordinator is LEADING; returns a verdict to propose
    verdict_commit.py   the stages of the verdict
    interruptions.py    signals and Slurm

Before a majority keeps its verdict the coordinator is a CANDIDATE again when it has stood still for longer than the
fence, or hears of a promise to a higher term. It decides only while it can prove that a majority is with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ft_supervisor.core import messages, orders
from ft_supervisor.core.actions import Announce, CoordinatorAction, Leave, Tell
from ft_supervisor.core.coordinator.cycle_step import Standing, Step
from ft_supervisor.core.coordinator.cycles import Cycles
from ft_supervisor.core.coordinator.interruptions import Interruptions
from ft_supervisor.core.coordinator.leadership import Leadership, Role, knows_newer
from ft_supervisor.core.coordinator.verdict_commit import Stage, VerdictCommit
from ft_supervisor.core.events import (
    CloseHeld,
    CoordinatorEvent,
    Heard,
    Promised,
    Received,
    SlurmToldUs,
    StepRead,
    Tick,
    VerdictFileFound,
    VerdictWritten,
)
from ft_supervisor.core.model import Cycle, Job, Memory, Node, Outcome, Roster, Verdict, one_line
from ft_supervisor.core.plausible import Heights, from_node
from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.quorum.members import Member, Members
from ft_supervisor.core.ranks import fold
from ft_supervisor.core.refusals import Refusals
from ft_supervisor.core.summary import Summary
from ft_supervisor.core.transitions import check_invariants


class CoordinatorMachine:
    """Pure: `handle` takes what happened and returns what to do. All times in seconds."""

    def __init__(self, job: Job, node: Node, incarnation: int, memory: Memory, now: float, epoch: float = 0.0) -> None:
        self.job = job
        self.node = node
        self._leadership = Leadership(job, node, incarnation, memory)
        self._cycles = Cycles(job, self.members, self._leadership.election.term or 0, now)
        self._cycles_told = 0
        """How many cycles nodes have told of."""
        self._commit = VerdictCommit()
        self._deputy: int | None = None
        self._interruptions = Interruptions(job, now)
        self._epoch = epoch
        self._known = Heights().with_(memory)
        self._refusals = Refusals()
        self._last_tick = now
        self._actions: list[CoordinatorAction] = []

    # -- to be looked at by the shell, status and metrics

    @property
    def role(self) -> Role:
        """What it does."""
        return self._leadership.role

    @property
    def term(self) -> int | None:
        """The term in which it is in charge; None when it is not."""
        return self._leadership.term

    @property
    def members(self) -> Members:
        """The nodes that it knows."""
        return self._leadership.members

    @property
    def phase(self) -> str:
        """The phase of the cycles of one that leads, else its role; a word for people."""
        return self._cycles.phase.value if self.role is Role.LEADING else self.role.value

    @property
    def cycle(self) -> Cycle | None:
        """The newest that it knows of."""
        return self._cycles.cycle

    @property
    def verdict(self) -> Verdict | None:
        """The job's, once that is certain."""
        return self._commit.verdict

    @property
    def proposal(self) -> Verdict | None:
        """The verdict that it has proposed; the job's only once a majority keeps it."""
        return self._commit.proposal

    @property
    def cycles(self) -> Cycles:
        """The training; to be looked at only."""
        return self._cycles

    @property
    def roster(self) -> Roster:
        """The members' list that counts here."""
        return self._leadership.roster

    @property
    def majority(self) -> bool:
        """Whether it had the majority's proof at its last tick, without which it decides nothing."""
        return self.term is not None and self._leadership.has_majority

    @property
    def end_at(self) -> float | None:
        """When Slurm ends the job, by our own clock; None where that is not known."""
        return self._interruptions.end_at

    @property
    def slurm_away(self) -> bool:
        """Whether Slurm did not answer when it was last asked."""
        return self._interruptions.away

    def age(self, now: float) -> float | None:
        """Seconds since a majority was certainly with us; None if it never was."""
        return self._leadership.majority.age(now)

    def wall(self, now: float) -> float:
        """Seconds since the epoch by our clock."""
        return self._epoch + now

    def validate(self) -> None:
        """Raise InvalidState if an invariant does not hold. For tests: takes time."""
        self._leadership.validate()
        self._commit.validate()
        check_invariants(
            self.role,
            {
                "a verdict is proposed or known": self.role is not Role.CLOSING or self._commit.stage is not Stage.OPEN,
                "only one that closes has a proposal": self.role is Role.CLOSING or self.proposal is None,
            },
        )
        self._cycles.validate()

    # -- events

    def handle(self, event: CoordinatorEvent, now: float) -> list[CoordinatorAction]:
        """One event in, actions out, in order. Raises InvalidState for a bug."""
        self._actions = []
        match event:
            case Received(message):
                self._receive(message, now)
                for early in self._leadership.release():
                    self._receive(early, now)
            case Heard(echoes):
                for infra_rank, round_ in echoes:
                    self._do(*self._leadership.beat(infra_rank, round_, now))
            case Promised(term):
                self._leadership.election.promised(term)
            case VerdictWritten(verdict):
                self._do(*self._commit.written(verdict, now))
            case VerdictFileFound(verdict):
                self._decide(verdict, now)
            case CloseHeld(verdict):
                self._close_held(verdict, now)
            case StepRead(step):
                if self.role is Role.LEADING:
                    self._follow(self._cycles.step_read(step, self._standing(now)), now)
            case SlurmToldUs(said):
                self._hear_slurm(said, now)
            case Tick():
                self._tick(now)
        return self._actions

    def _tick(self, now: float) -> None:
        late = now - self._last_tick - 2 * self.job.timeouts.heartbeat
        stalled = now - self._last_tick > self.job.timeouts.fence
        self._last_tick = now
        self._do(*self._commit.tick(now))
        if late > 0:
            self._late(late, stalled, now)
        if self.role is Role.LEADING and self._leadership.majority.proof.round == 0:
            assert self.term is not None
            self._announce(facts.TookCharge(self.term, None))
        self._do(Tell(orders.Alive(self.phase, str(self.cycle or ""))), self._leadership.pulse(now))
        if self.role is Role.LEADING:
            self._tick_leading(now)
        elif self.role is Role.CLOSING:
            self._lose_silent(now)
            self._leave_when_done(now)
        else:
            self._do(*self._leadership.retry(now))

    def _tick_leading(self, now: float) -> None:
        self._do(*self._leadership.look(now))
        if not self._leadership.has_majority:
            return
        self._lose_silent(now)
        self._ask_slurm(now)
        if verdict := self._interruptions.verdict(None, now):
            self._propose(verdict, now)
        else:
            self._follow(self._cycles.advance(self._standing(now)), now)
            if self.role is Role.LEADING:
                self._follow(self._cycles.watch(self._standing(now)), now)
        if self.role is Role.LEADING and self.cycle is not None:
            self._do(*self._leadership.change_roster())

    def _late(self, seconds: float, stalled: bool, now: float) -> None:
        """Time during which this process was suspended is not counted as silence. After a suspension longer than the
        fence another coordinator may have taken over: step down, and every node counts as silent until it is heard."""
        self._announce(facts.TickLate(seconds))
        if not stalled or self.verdict is not None:
            self.members.forgive(seconds, now)
        elif self.term is not None:
            self._step_down(f"stood still for {seconds:.1f} s")

    def _lose_silent(self, now: float) -> None:
        for member in self._leadership.silent(now):
            self._lose(member, now)

    def _lose(self, member: Member, now: float) -> None:
        ran = member.running
        self._leadership.lose(member)
        reason = facts.why_lost(member.node.name, self.job.timeouts.node_lost)
        self._announce(facts.NodeLost(member.node.infra_rank, member.heard, self.job.timeouts.node_lost))
        if self.role is Role.LEADING:
            charged, standing = member.times_lost > 1, self._standing(now)
            self._follow(self._cycles.missing(member, reason, ran=ran, charged=charged, standing=standing), now)

    # -- cycles

    def _standing(self, now: float) -> Standing:
        return Standing(now, self.wall(now), self.age(now), self._leadership.rosters.eligible)

    def _follow(self, step: Step, now: float) -> None:
        """Do what the cycles want; afterwards propose their verdict, or begin a cycle if that is permitted."""
        self._do(*step.actions)
        if step.verdict is not None:
            self._propose(step.verdict, now)
        elif step.ready and self._may_start(now):
            self._follow(self._cycles.begin(self._standing(now)), now)

    def _may_start(self, now: float) -> bool:
        """Whether the leadership permits a new cycle, and no signal says that the job may just be ending."""
        return not self._interruptions.told_to_end and self._leadership.may_start(now)

    # -- messages

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        """A Register says itself what its node has promised; any other message counts in the term of its node's promise
        alone, and MESSAGES has what each role does with it."""
        if wrong := from_node(message, self.job, self._heights()):
            self._drop(message, wrong, now)
        elif isinstance(message, messages.Register):
            self._register(message, now)
        elif self.role is Role.PREPARING and message.term == self._leadership.election.term:
            self._leadership.postpone(message)
        elif message.term != self.term:
            self._drop(message, None, now)
        else:
            member = self.members.get(message.infra_rank)
            if member is not None and member.incarnation == message.incarnation and not member.gone:
                member.heard = now
                if (hear := MESSAGES[self.role].get(type(message))) is not None:
                    hear(self, message, member, now)

    def _drop(self, message: messages.ToCoordinator, wrong: str | None, now: float) -> None:
        """`wrong`: what cannot be true of it; None if it is merely old."""
        name = type(message).__name__
        if (more := self._refusals.due(f"{name} {wrong}", now)) is not None:
            self._announce(facts.MessageDropped(name, message.infra_rank, message.term, wrong, more))

    def _heights(self) -> Heights:
        """What is known, our own term's cycles included."""
        cycle, ledger, known = self.cycle, self._cycles.ledger, self._known
        return Heights(
            max(known.term, self._leadership.election.term or 0),
            max(known.cycle, cycle.n if cycle else 0),
            max(known.entries, ledger.entries),
            max(known.roster, self.roster.number),
        )

    def _register(self, message: messages.Register, now: float) -> None:
        leadership = self._leadership
        member = leadership.register(message, now)
        if member is None:
            return
        self._known = self._known.with_(message.memory)
        if (newest := message.memory.newest) is not None:
            self._cycles_told = max(self._cycles_told, newest.n + 1)
        if self._commit.stage is Stage.CLAIMED:
            assert self.verdict is not None
            self._do(member.mail(messages.Close(leadership.election.term or 0, self.verdict)))
        elif self.role is Role.CANDIDATE:
            self._do(*leadership.campaign(now))
        elif message.term == leadership.election.term:
            self._hear_promise(message, member, now)
        elif leadership.election.is_above(message.term):
            if knows_newer(message.memory, self.cycle):
                member.running = True  # or may be: what it knows of that cycle counts with its promise
            self._do(leadership.prepare(member))
        else:
            self._step_down(f"{member.node.name} has promised term {message.term}")
            self._do(*leadership.campaign(now))

    def _hear_promise(self, message: messages.Register, member: Member, now: float) -> None:
        answered = self._leadership.is_answer(message, member)
        if self.role is not Role.PREPARING:
            self._welcome(message, member, now)
        elif not answered:  # it had promised this term to a former process of this node
            self._do(self._leadership.prepare(member))
        elif self._leadership.election.promise(message):
            self._take_charge(now)

    def _take_charge(self, now: float) -> None:
        """Go on from what the majority says: from a verdict that one of its nodes has accepted, else from the cycle."""
        self._do(*self._leadership.take_charge(now))
        election = self._leadership.election
        assert election.term is not None
        self._cycles = Cycles(self.job, self.members, election.term, now)
        memories = [message.memory for message in election.promises.values()]
        accepted = max((memory.accepted for memory in memories if memory.accepted), key=lambda a: a.term, default=None)
        if accepted is not None:  # it may have been the job's verdict already
            self._leadership.become(Role.CLOSING, "an accepted verdict")
            self._commit.propose(accepted.verdict, now)
        else:
            self._follow(self._cycles.adopt(memories, self._standing(now)), now)
        for message in election.promises.values():
            self._welcome(message, self.members[message.infra_rank], now)

    def _step_down(self, reason: str) -> None:
        """Another coordinator may be in charge, and decide: what we have proposed is of no use. A verdict that is
        decided stays."""
        if self._commit.verdict is None:
            self._do(*self._leadership.step_down(reason))
            self._commit = VerdictCommit()

    def _welcome(self, message: messages.Register, member: Member, now: float) -> None:
        """A node that has promised our term, and all that it knows."""
        assert self.term is not None
        memory, roster = message.memory, self.roster
        self._announce(facts.NodeRegistered(message.infra_rank, message.incarnation))
        if memory.roster == roster:
            self._keep_roster(message.infra_rank, roster.stamp, now)
        elif roster.number or roster.term >= 0:  # all know the first one
            self._do(member.mail(messages.Members(self.term, roster)))
        if memory.verdict is not None:
            self._decide(memory.verdict, now)
        if (verdict := self.verdict or self._commit.proposal) is not None:
            self._do(self._proposal_for(member, verdict))
            return
        if message.told:
            self._hear_signal(member, message.told, now)
        if self.role is Role.LEADING:
            self._follow(self._cycles.welcome(message, member, self._standing(now)), now)

    def _keep_roster(self, infra_rank: int, stamp: tuple[int, int], now: float) -> None:
        stage = self._leadership.rosters.stage
        self._do(*self._leadership.keep_roster(infra_rank, stamp))
        if self.role is Role.LEADING and self._leadership.rosters.stage != stage:
            self._follow(self._cycles.advance(self._standing(now)), now)

    def _hear_roster_kept(self, message: messages.RosterKept, member: Member, now: float) -> None:
        self._keep_roster(message.infra_rank, message.stamp, now)

    def _hear_verdict_kept(self, message: messages.VerdictKept, member: Member, now: float) -> None:
        if (kept := self._commit.keep(message.infra_rank, self.roster)) is not None:
            self._decide(kept, now)

    def _hear_workers(self, message: messages.OfWorkers, member: Member, now: float) -> None:
        self._follow(self._cycles.hear(message, member, self._standing(now)), now)

    def _hear_unhealthy(self, message: messages.Unhealthy, member: Member, now: float) -> None:
        if member.problem is None:
            member.problem = message.problem
            self._announce(facts.NodeUnhealthy(member.node.infra_rank, message.problem))
        if self.role is Role.LEADING:
            self._follow(self._cycles.unhealthy(member, message.problem, self._standing(now)), now)

    def _hear_leaving(self, message: messages.Leaving, member: Member, now: float) -> None:
        self._hear_signal(member, message.reason, now)

    def _hear_signal(self, member: Member, signal: str, now: float) -> None:
        """A signal asks this node to end."""
        if self.role is not Role.LEADING:
            return
        if verdict := self._interruptions.leave(f"{member.node.name} was told to end: {signal}", now):
            self._propose(verdict, now)
        else:
            self._ask_slurm(now)

    def _hear_goodbye(self, message: messages.Goodbye, member: Member, now: float) -> None:
        ran, member.gone = member.running, True
        member.stopped()
        if message.verdict is not None:
            self._decide(message.verdict, now)
        if self.role is Role.CLOSING:
            self._leave_when_done(now)
        else:
            reason, standing = f"{member.node.name} left", self._standing(now)
            self._follow(self._cycles.missing(member, reason, ran=ran, charged=False, standing=standing), now)

    # -- Slurm

    def _ask_slurm(self, now: float) -> None:
        if self._interruptions.ask(now):
            self._do(Tell(orders.AskSlurm(self._interruptions.told_to_end)))

    def _hear_slurm(self, said: orders.SlurmSaid, now: float) -> None:
        if news := self._interruptions.hear(said, now):
            self._announce(facts.SlurmNews(news, bool(said.problem)))
        if self.role is Role.LEADING and self._leadership.may_decide(now):
            if verdict := self._interruptions.verdict(said, now):
                self._propose(verdict, now)
            elif said.draining is not None:
                self._follow(self._cycles.drain(frozenset(said.draining), self._standing(now)), now)

    # -- the verdict

    def _propose(self, verdict: Verdict, now: float) -> None:
        """Propose this verdict to all; it is the job's once a majority keeps it.

        A signal that is not explained yet says more than workers, whom it has reached too: they may have ended well
        or badly because of it. Interruptions has a verdict within ASK_BOUND.
        """
        of_workers = verdict.outcome in (Outcome.SUCCESS, Outcome.FAILED)
        if self.role is Role.CLOSING or (of_workers and self._interruptions.told_to_end):
            return
        self._leadership.become(Role.CLOSING, "a verdict is proposed")
        verdict = replace(verdict, reason=one_line(verdict.reason))
        self._commit.propose(verdict, now)
        self._announce(facts.VerdictProposed(verdict))
        self._deputy = self._choose_deputy()
        self._do(*(self._proposal_for(member, verdict) for member in self.members if member.registered))

    def _choose_deputy(self) -> int | None:
        """The node that sees to the job's end in Slurm where Slurm did not answer ours: slurmctld may have lost this
        node alone, and taken it out of the job."""
        here = (m.node.infra_rank for m in self.members if m.registered and m.node.infra_rank != self.node.infra_rank)
        return min(here, default=None) if self._interruptions.away else None

    def _proposal_for(self, member: Member, verdict: Verdict) -> CoordinatorAction:
        term = self._leadership.election.term
        assert term is not None
        return member.mail(messages.Propose(term, verdict, member.node.infra_rank == self._deputy))

    def _decide(self, verdict: Verdict, now: float) -> None:
        """This is the job's verdict: a majority keeps it, or a node, the file or the key has it."""
        if self.role is Role.LEADING:
            self._leadership.become(Role.CLOSING, "the job's verdict is decided")
        self._do(*self._commit.decide(verdict, self._lost(), self._summary(), now))

    def _close_held(self, verdict: Verdict, now: float) -> None:
        """The key holds this verdict. After our claim it is told; else another process set it, and it is decided."""
        if self._commit.stage is not Stage.WRITTEN:
            self._decide(verdict, now)
            return
        if self.role is not Role.CLOSING:
            self._leadership.become(Role.CLOSING, "the key holds the verdict")
        self._commit.close(verdict, now)
        self._announce(facts.VerdictClosed(verdict))
        self._do(*self._leadership.mail_all(messages.Close(self._leadership.election.term or 0, verdict)))
        self._leave_when_done(now)

    def _leave_when_done(self, now: float) -> None:
        if self._commit.stage is not Stage.CLAIMED or self.verdict is None:
            return
        if self._commit.is_over(self.job, now) or not any(member.registered for member in self.members):
            self._do(Tell(orders.VerdictDecided(self.verdict, self._lost(), self._commit.summary)))
            self._do(Leave(self.verdict.exit_code, self.verdict, self.verdict.reason))

    def _summary(self) -> Summary:
        """The job's story, as far as this coordinator knows it: of cycles before its term only how many there were."""
        cycles = max(self._cycles_told, self.cycle.n + 1 if self.cycle else 0)
        return self._cycles.tally.summary(cycles, self._leadership.takeovers)

    def _lost(self) -> str:
        """The infra_ranks of nodes that are not here any more, and have not said Goodbye; folded."""
        here = {m.node.infra_rank for m in self.members if m.registered or m.gone}
        return fold(rank for rank in range(len(self.job.nodes)) if rank not in here)

    def _announce(self, fact: facts.CoordinatorFact) -> None:
        self._actions.append(Announce(fact))

    def _do(self, *actions: CoordinatorAction | None) -> None:
        self._actions += (action for action in actions if action is not None)


Hear = Callable[[CoordinatorMachine, Any, Member, float], None]

_IN_CHARGE: Mapping[type, Hear] = {
    messages.RosterKept: CoordinatorMachine._hear_roster_kept,
    messages.Unhealthy: CoordinatorMachine._hear_unhealthy,
    messages.Goodbye: CoordinatorMachine._hear_goodbye,
}
MESSAGES: Mapping[Role, Mapping[type, Hear]] = {
    Role.CANDIDATE: {},
    Role.PREPARING: {},
    Role.LEADING: {
        **_IN_CHARGE,
        messages.Leaving: CoordinatorMachine._hear_leaving,
        **dict.fromkeys(messages.OF_WORKERS, CoordinatorMachine._hear_workers),
    },
    Role.CLOSING: {**_IN_CHARGE, messages.VerdictKept: CoordinatorMachine._hear_verdict_kept},
}
"""What each role does with a message of its own term; what is not here changes nothing. See _receive for the others."""

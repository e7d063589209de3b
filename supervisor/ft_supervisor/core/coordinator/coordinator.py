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

from ft_supervisor.core.coordinator.cycle_step import Step
from ft_supervisor.core.coordinator.leadership import Role, knows_newer
from ft_supervisor.core.coordinator.state import CoordinatorState
from ft_supervisor.core.coordinator.verdict_commit import Stage
from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction, Leave, Tell
from ft_supervisor.core.protocol.checkpoint import CheckpointSeen
from ft_supervisor.core.protocol.events import (
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
from ft_supervisor.core.protocol.model import Cycle, Job, Memory, Node, Outcome, Verdict
from ft_supervisor.core.protocol.plausible import from_node
from ft_supervisor.core.protocol.refusals import Refusals
from ft_supervisor.core.quorum.members import Member, Members
from ft_supervisor.core.words import one_line


class CoordinatorMachine:
    """Pure: `handle` takes what happened and returns what to do. All times in seconds."""

    def __init__(
        self,
        job: Job,
        node: Node,
        incarnation: int,
        memory: Memory,
        now: float,
        epoch: float = 0.0,
        waited: float = 0.0,
    ) -> None:
        self.job = job
        self.node = node
        self.state = CoordinatorState(job, node, incarnation, memory, now, epoch, waited)
        self._leadership = self.state.leadership
        self._interruptions = self.state.interruptions
        self._deputy: int | None = None
        self._refusals = Refusals()
        self._last_tick = now
        self._actions: list[CoordinatorAction] = []

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
    def cycle(self) -> Cycle | None:
        """The newest that it knows of."""
        return self.state.cycles.cycle

    @property
    def verdict(self) -> Verdict | None:
        """The job's, once that is certain."""
        return self.state.commit.verdict

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
                self._do(*self.state.commit.written(verdict, now))
            case VerdictFileFound(verdict):
                self._decide(verdict, now)
            case CloseHeld(verdict):
                self._close_held(verdict, now)
            case StepRead(step, age):
                self.state.account.read_step(step, age, now)
                if self.role is Role.LEADING:
                    self._follow(self.state.cycles.step_read(step, self.state.standing(now)), now)
            case CheckpointSeen():
                pass
            case SlurmToldUs(said):
                self._hear_slurm(said, now)
            case Tick():
                self._tick(now)
        return self.state.saw(self._actions, now)

    def _tick(self, now: float) -> None:
        late = now - self._last_tick - 2 * self.job.timeouts.heartbeat
        stalled = now - self._last_tick > self.job.timeouts.fence
        self._last_tick = now
        self._do(*self.state.commit.tick(now))
        if late > 0:
            self._late(late, stalled, now)
        if self.role is Role.LEADING and self._leadership.majority.proof.round == 0:
            assert self.term is not None
            self._announce(facts.TookCharge(self.term, None))
        self._do(Tell(orders.Alive(self.state.phase, str(self.cycle or ""))), self._leadership.pulse(now))
        if self.role is Role.LEADING:
            self._tick_leading(now)
        elif self.role is Role.CLOSING:
            for member in self._leadership.silent(now):
                self._lose(member, now)
            self._leave_when_done(now)
        else:
            self._do(*self._leadership.retry(now))

    def _tick_leading(self, now: float) -> None:
        self._do(*self._leadership.look(now), *self.state.waiting(now))
        if not self._leadership.has_majority:
            return
        for member in self._leadership.silent(now):
            self._lose(member, now)
        self._ask_slurm(now)
        if verdict := self._interruptions.verdict(None, now):
            self._propose(verdict, now)
        else:
            self._follow(self.state.cycles.advance(self.state.standing(now)), now)
            if self.role is Role.LEADING:
                self._follow(self.state.cycles.watch(self.state.standing(now)), now)
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

    def _lose(self, member: Member, now: float) -> None:
        ran = member.running
        self._leadership.lose(member)
        reason = facts.why_lost(member.node.name, self.job.timeouts.node_lost)
        self._announce(facts.NodeLost(member.node.infra_rank, member.heard, self.job.timeouts.node_lost))
        if self.role is Role.LEADING:
            charged, standing = member.times_lost > 1, self.state.standing(now)
            self._follow(self.state.cycles.missing(member, reason, ran=ran, charged=charged, standing=standing), now)

    # -- cycles

    def _follow(self, step: Step, now: float) -> None:
        """Do what the cycles want; afterwards propose their verdict, or begin a cycle if that is permitted."""
        self._do(*step.actions)
        if step.verdict is not None:
            self._propose(step.verdict, now)
        elif step.ready and self.state.may_start(now):
            self._follow(self.state.cycles.begin(self.state.standing(now)), now)

    # -- messages

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        """A Register says itself what its node has promised; any other message counts in the term of its node's promise
        alone, and MESSAGES has what each role does with it."""
        if wrong := from_node(message, self.job, self.state.heights()):
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
                self.state.hear(message, member, now)
                if (hear := MESSAGES[self.role].get(type(message))) is not None:
                    hear(self, message, member, now)

    def _drop(self, message: messages.ToCoordinator, wrong: str | None, now: float) -> None:
        """`wrong`: what cannot be true of it; None if it is merely old."""
        name = type(message).__name__
        if (more := self._refusals.due(f"{name} {wrong}", now)) is not None:
            self._announce(facts.MessageDropped(name, message.infra_rank, message.term, wrong, more))

    def _register(self, message: messages.Register, now: float) -> None:
        leadership = self._leadership
        member = leadership.register(message, now)
        if member is None:
            return
        self.state.learn(message, now)
        if self.state.commit.stage is Stage.CLAIMED and self.verdict is not None:
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
        self.state.begin_term(now)
        memories = [message.memory for message in election.promises.values()]
        accepted = max((memory.accepted for memory in memories if memory.accepted), key=lambda a: a.term, default=None)
        if accepted is not None:  # it may have been the job's verdict already
            self._leadership.become(Role.CLOSING)
            self.state.commit.propose(accepted.verdict, now)
        else:
            self._follow(self.state.cycles.adopt(memories, self.state.standing(now)), now)
        for message in election.promises.values():
            self._welcome(message, self.members[message.infra_rank], now)

    def _step_down(self, reason: str) -> None:
        """Another coordinator may be in charge, and decide: what we have proposed is of no use. A verdict that is
        decided stays."""
        if self.state.commit.verdict is None:
            self._do(*self._leadership.step_down(reason))
            self.state.withdraw()

    def _welcome(self, message: messages.Register, member: Member, now: float) -> None:
        """A node that has promised our term, and all that it knows."""
        assert self.term is not None
        memory, roster = message.memory, self._leadership.roster
        self._announce(facts.NodeRegistered(message.infra_rank, message.incarnation))
        if memory.roster == roster:
            self._keep_roster(message.infra_rank, roster.stamp, now)
        elif roster.number or roster.term >= 0:  # all know the first one
            self._do(member.mail(messages.Members(self.term, roster)))
        if memory.verdict is not None:
            self._decide(memory.verdict, now)
        if (verdict := self.verdict or self.state.commit.proposal) is not None:
            self._do(self._proposal_for(member, verdict))
            return
        if message.told:
            self._hear_signal(member, message.told, now)
        if self.role is Role.LEADING:
            self._follow(self.state.cycles.welcome(message, member, self.state.standing(now)), now)

    def _keep_roster(self, infra_rank: int, stamp: tuple[int, int], now: float) -> None:
        stage = self._leadership.rosters.stage
        self._do(*self._leadership.keep_roster(infra_rank, stamp))
        if self.role is Role.LEADING and self._leadership.rosters.stage != stage:
            self._follow(self.state.cycles.advance(self.state.standing(now)), now)

    def _hear_verdict_kept(self, message: messages.VerdictKept, member: Member, now: float) -> None:
        if (kept := self.state.commit.keep(message.infra_rank, self._leadership.roster)) is not None:
            self._decide(kept, now)

    def _hear_workers(self, message: messages.OfWorkers, member: Member, now: float) -> None:
        self._follow(self.state.cycles.hear(message, member, self.state.standing(now)), now)

    def _hear_unhealthy(self, message: messages.Unhealthy, member: Member, now: float) -> None:
        if member.problem is None:
            member.problem = message.problem
            self._announce(facts.NodeUnhealthy(member.node.infra_rank, message.problem))
        if self.role is Role.LEADING:
            self._follow(self.state.cycles.unhealthy(member, message.problem, self.state.standing(now)), now)

    def _hear_signal(self, member: Member, signal: str, now: float) -> None:
        """A signal asks this node to end."""
        if self.role is not Role.LEADING:
            return
        if verdict := self._interruptions.leave(member.node.name, signal, now):
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
            reason, standing = f"{member.node.name} left", self.state.standing(now)
            self._follow(self.state.cycles.missing(member, reason, ran=ran, charged=False, standing=standing), now)

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
                self._follow(self.state.cycles.drain(frozenset(said.draining), self.state.standing(now)), now)

    # -- the verdict

    def _propose(self, verdict: Verdict, now: float) -> None:
        """Propose this verdict to all; it is the job's once a majority keeps it.

        A signal that is not explained yet says more than workers, whom it has reached too: they may have ended well
        or badly because of it. Interruptions has a verdict within ASK_BOUND.
        """
        of_workers = verdict.outcome in (Outcome.SUCCESS, Outcome.FAILED)
        if self.role is Role.CLOSING or (of_workers and self._interruptions.told_to_end):
            return
        self._leadership.become(Role.CLOSING)
        verdict = replace(verdict, reason=one_line(verdict.reason))
        self.state.commit.propose(verdict, now)
        self._announce(facts.VerdictProposed(verdict))
        self._deputy = self.state.deputy()
        self._do(*(self._proposal_for(member, verdict) for member in self.members if member.registered))

    def _proposal_for(self, member: Member, verdict: Verdict) -> CoordinatorAction:
        term = self._leadership.election.term
        assert term is not None
        return member.mail(messages.Propose(term, verdict, member.node.infra_rank == self._deputy))

    def _decide(self, verdict: Verdict, now: float) -> None:
        """This is the job's verdict: a majority keeps it, or a node, the file or the key has it."""
        if self.role is Role.LEADING:
            self._leadership.become(Role.CLOSING)
        self._do(*self.state.commit.decide(verdict, self.state.lost(), self.state.summary(now), now))

    def _close_held(self, verdict: Verdict, now: float) -> None:
        """The key holds this verdict. After our claim it is told; else another process set it, and it is decided."""
        if self.state.commit.stage is not Stage.WRITTEN:
            self._decide(verdict, now)
            return
        if self.role is not Role.CLOSING:
            self._leadership.become(Role.CLOSING)
        self.state.commit.close(verdict, now)
        self._announce(facts.VerdictClosed(verdict))
        self._do(*self._leadership.mail_all(messages.Close(self._leadership.election.term or 0, verdict)))
        self._leave_when_done(now)

    def _leave_when_done(self, now: float) -> None:
        if self.state.commit.stage is not Stage.CLAIMED or self.verdict is None:
            return
        if self.state.commit.is_over(self.job, now) or not any(member.registered for member in self.members):
            self._do(Tell(orders.VerdictDecided(self.verdict, self.state.lost(), self.state.commit.summary)))
            self._do(Leave(self.verdict.exit_code, self.verdict, self.verdict.reason))

    def _announce(self, fact: facts.CoordinatorFact) -> None:
        self._do(Announce(fact))

    def _do(self, *actions: CoordinatorAction) -> None:
        self._actions += actions


Hear = Callable[[CoordinatorMachine, Any, Member, float], None]

_IN_CHARGE: Mapping[type, Hear] = {
    messages.RosterKept: lambda machine, message, _, now: machine._keep_roster(message.infra_rank, message.stamp, now),
    messages.Unhealthy: CoordinatorMachine._hear_unhealthy,
    messages.Goodbye: CoordinatorMachine._hear_goodbye,
}
MESSAGES: Mapping[Role, Mapping[type, Hear]] = {
    Role.CANDIDATE: {},
    Role.PREPARING: {},
    Role.LEADING: {
        **_IN_CHARGE,
        messages.ToldToEnd: lambda machine, message, member, now: machine._hear_signal(member, message.reason, now),
        **dict.fromkeys(messages.OF_WORKERS, CoordinatorMachine._hear_workers),
    },
    Role.CLOSING: {**_IN_CHARGE, messages.VerdictKept: CoordinatorMachine._hear_verdict_kept},
}
"""What each role does with a message of its own term; what is not here changes nothing. See _receive for the others."""

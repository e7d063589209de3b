"""The training in one term: which nodes train, when a cycle begins, what ends it, and what the nodes are to do.

Each call takes what has happened and the leadership's Standing, and returns a Step (cycle_step.py, with the phases).
FailureDecision collects what went wrong until all nodes have stopped; Succession chooses the nodes of the next cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from ft_supervisor.core.coordinator import hang_round, policy
from ft_supervisor.core.coordinator.announcements import Announcements
from ft_supervisor.core.coordinator.current_cycle import CurrentCycle
from ft_supervisor.core.coordinator.cycle_step import PHASES, Phase, Standing, Step, invariants
from ft_supervisor.core.coordinator.failure_decision import FailureDecision
from ft_supervisor.core.coordinator.policy import Decision, Trouble
from ft_supervisor.core.coordinator.succession import Succession, Successors
from ft_supervisor.core.placement.selection import Selection
from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction, ReadStep
from ft_supervisor.core.protocol.ledger import Ledger, newer
from ft_supervisor.core.protocol.model import Cycle, Ending, Job, Memory, Outcome, Problem, Verdict
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.summary import Tally
from ft_supervisor.core.quorum.members import Member, Members
from ft_supervisor.core.transitions import check_invariants, check_transition


class Cycles:
    """One term's view of the training. All times in seconds."""

    def __init__(self, job: Job, members: Members, term: int, now: float) -> None:
        self.job = job
        self._phase = Phase.JOINING
        self.current = CurrentCycle(job, term)
        self.selection = Selection(job, members)
        self.tally = Tally(job.nodes)
        self._members = members
        self._failure = FailureDecision(job, now)
        self._hangs = hang_round.HangRounds(job, members, self.current)
        self.announcements = Announcements(job)
        self._standing = Standing(now, now, None, frozenset())
        self._step = Step()
        self._since = now
        self._succession = Succession(job, self.selection)

    @property
    def phase(self) -> Phase:
        """Where the training is."""
        return self._phase

    def _become(self, phase: Phase) -> None:
        check_transition(PHASES, self._phase, phase)
        self._phase = phase

    def validate(self) -> None:
        """Raise InvalidState if an invariant does not hold. For tests."""
        check_invariants(self._phase, invariants(self._phase, self.current, self._failure.trouble is not None))

    @property
    def ledger(self) -> Ledger:
        """What has been spent of the budgets."""
        return self._failure.ledger

    @property
    def cycle(self) -> Cycle | None:
        """The newest; None before the first."""
        return self.current.name

    @property
    def group(self) -> tuple[int, ...]:
        """Its nodes' infra_ranks by group_rank."""
        return self.current.group

    # -- messages from nodes

    def adopt(self, memories: Sequence[Memory], standing: Standing) -> Step:
        """Go on from what a majority knows of a former term's cycles; each of them is to be welcomed afterwards."""
        step, now = self._enter(standing), standing.now
        for memory in memories:
            self._take_over(memory.ledger)
        newest = max(memories, key=lambda memory: memory.newest or Cycle(-1, -1))
        if newest.newest is not None:
            self._go_on_with(newest.newest, newest.group, now)
            if gone := [rank for rank in self.group if self._members.get(rank) is None]:
                self._trouble(policy.trouble_of_given_up(self.job, gone), now)
        return step

    def _go_on_with(self, cycle: Cycle, group: str, now: float) -> None:
        self._become(Phase.RUNNING)
        self.current.adopt(cycle, parse_ranks(group))
        self._hangs.end()
        self._since = now

    def _take_over(self, other: Ledger) -> None:
        self._failure.ledger = newer(self._failure.ledger, other)
        self.selection.excluded = frozenset(parse_ranks(self._failure.ledger.excluded))

    def welcome(self, message: messages.Register, member: Member, standing: Standing) -> Step:
        """A node has registered: tell it what to do."""
        step, now, memory = self._enter(standing), standing.now, message.memory
        self._take_over(memory.ledger)
        if memory.newest is not None and memory.newest > (self.cycle or Cycle(-1, -1)):
            self._learn(memory, member, now)
        if self.current.has(member):
            self._welcome_active(message, member, now)
        else:
            self._stand_by(member)
            # While some are missing, only ticks look whether enough are here: 1,000 joins shall not cost 1,000 squared.
            if self.phase is not Phase.JOINING or len(self._members) == len(self.job.nodes):
                self._advance(now)
        return step

    def _learn(self, memory: Memory, member: Member, now: float) -> None:
        """A former coordinator began it and reached only nodes that had not yet told us: it may simply go on, unless
        one of its nodes has told us already, and did not know of it."""
        assert memory.newest is not None
        self._go_on_with(memory.newest, memory.group, now)
        if not self.current.may_go_on(self._members):
            reason = f"{member.node.name} knows of cycle {self.cycle}, begun by a former coordinator"
            self._trouble(Trouble(reason, charged=False), now)

    def _welcome_active(self, message: messages.Register, member: Member, now: float) -> None:
        """An active node's connection, agent or coordinator is new: go by what it says of the running cycle."""
        assert self.cycle is not None
        memory = message.memory
        self.current.progressed |= memory.progressed == self.cycle
        failure = memory.failures[0] if memory.failures else None
        if memory.succeeded == self.cycle:
            self._mail(member, self.current.resume(self.ledger, self._standing.age))
            self._succeeded(member, now)
        elif message.running == self.cycle:
            if memory.unhealthy is not None:
                self._unhealthy(member, memory.unhealthy, now)
            elif failure is not None:
                self._trouble(policy.trouble_of_failure(member.node, failure), now)
            if self.phase is Phase.STOPPING:
                self._mail(member, self.current.stop(self._failure.grace))
            else:
                self._mail(member, self.current.resume(self.ledger, self._standing.age))
                self._release(self.current.returned(message.infra_rank, message.completed))
                self._look_at_hang(now, message)
        elif message.running is not None:
            self._stand_by(member, watch=False)
            still = f"still runs cycle {message.running}"
            self._trouble(policy.trouble_without_failure(member.node, still, charged=True), now)
        elif self.current.is_ours and (memory.newest is None or memory.newest < self.cycle):
            self._run_or_stop(member, now)
        else:
            pending = member.node.infra_rank in self.current.pending
            if pending if memory.unhealthy is not None else self.phase is Phase.RUNNING:  # or its peers were faster
                self._trouble(policy.trouble_of_idle(member.node, memory, self.current), now)
            self._stand_by(member)
            self._stopped(member, now)

    def _run_or_stop(self, member: Member, now: float) -> None:
        """It said this before it heard of our Run, which may still reach it; or the Run is lost."""
        if self.phase is Phase.RUNNING:
            self._run(member, format_ranks(self.group), self.group.index(member.node.infra_rank))
        else:
            member.running, member.cycle = True, self.cycle
            self._mail(member, self.current.stop(self._failure.grace))

    def unhealthy(self, member: Member, problem: Problem, standing: Standing) -> Step:
        """A check has failed on this node, which is not to be chosen again."""
        step = self._enter(standing)
        self._unhealthy(member, problem, standing.now)
        return step

    def _unhealthy(self, member: Member, problem: Problem, now: float) -> None:
        if self.current.has(member) and member.node.infra_rank in self.current.pending:
            self._trouble(policy.trouble_of_check(member.node, problem), now)

    def hear(self, message: messages.OfWorkers, member: Member, standing: Standing) -> Step:
        """What has become of a node's workers."""
        step = self._enter(standing)
        if isinstance(message, messages.WorkersStopped):
            self._hear_stopped(message, member, standing.now)
        elif isinstance(message, messages.AgentGone):
            self._hear_agent_gone(message, member, standing.now)
        elif message.cycle == self.cycle and self.current.has(member):
            self._hear_active(message, member, standing.now)
        return step

    def _hear_stopped(self, message: messages.WorkersStopped, member: Member, now: float) -> None:
        member.port = message.port
        if message.cycle == self.cycle and self.current.has(member):
            self.current.progressed |= message.progressed
        if member.cycle is not None and message.cycle < member.cycle:
            return
        if self.phase is Phase.RUNNING and self.current.has(member) and message.infra_rank in self.current.pending:
            # Unasked: the message that says why was lost.
            self._trouble(policy.trouble_of_workers(member.node, self.current, "stopped"), now)
        self._stopped(member, now)

    def _hear_agent_gone(self, message: messages.AgentGone, member: Member, now: float) -> None:
        """Nothing of the node's workers is left. It is not chosen before its next agent has registered."""
        if member.agentless:
            return
        member.agentless = True
        if message.cycle == self.cycle and self.current.has(member):
            self.current.progressed |= message.progressed
            if message.succeeded:
                self._succeeded(member, now)
        if message.infra_rank in self.current.pending:
            runs = self.phase is Phase.RUNNING
            if (trouble := policy.trouble_of_dead_agent(member.node, message, self.current, runs=runs)) is not None:
                self._trouble(trouble, now)
        self._stopped(member, now)

    def _hear_active(self, message: messages.OfWorkers, member: Member, now: float) -> None:
        match message:
            case messages.Stopping():
                self._failure.heard(message.infra_rank)
            case messages.WorkersSucceeded():
                self._succeeded(member, now)
            case messages.HangNoticed() | messages.Evidence() | messages.StandsStill():
                self._look_at_hang(now, message)
            case messages.WorkersCompleted(functions=functions):
                self._release(self.current.returned(message.infra_rank, functions))
            case messages.WorkersFailed(failures=failures):
                self._do(Announce(facts.FailuresHeard(member.node.infra_rank, message.cycle, len(failures))))
                for failure in failures:
                    self._trouble(policy.trouble_of_failure(member.node, failure), now)
                if not failures:
                    self._trouble(policy.trouble_of_workers(member.node, self.current, "failed"), now)

    def _look_at_hang(self, now: float, message: hang_round.Told | None = None) -> None:
        if message is not None and self.phase is Phase.RUNNING:
            self._step.actions += self._hangs.hear(message, now)
        if (trouble := self._hangs.conclude(self._standing.wall, now, self._do)) is not None:
            self._trouble(trouble, now)

    def _release(self, nodes: Collection[int]) -> None:
        """Send Complete to these nodes: the workers of all nodes have returned."""
        for node in sorted(nodes if self.phase is Phase.RUNNING else ()):
            if self._members[node].registered:
                self._mail(self._members[node], self.current.complete())

    def _succeeded(self, member: Member, now: float) -> None:
        member.stopped()
        self._failure.heard(member.node.infra_rank)
        self._release(self.current.succeeded(member.node.infra_rank))
        if self.phase is Phase.RUNNING and not self.current.pending:
            reason = f"all workers of cycle {self.cycle} exited with 0"
            self._step.verdict = Verdict(Outcome.SUCCESS, reason, ending=Ending.TRAINED)
        else:
            self._advance(now)

    def _stopped(self, member: Member, now: float) -> None:
        member.stopped()
        self._failure.heard(member.node.infra_rank)
        self._advance(now)

    def missing(self, member: Member, reason: str, *, ran: bool, charged: bool, standing: Standing) -> Step:
        """A node can run nothing any more; `ran`: until now it might have."""
        step, now, infra_rank = self._enter(standing), standing.now, member.node.infra_rank
        self._failure.heard(infra_rank)
        if infra_rank in self.current.pending and (self.phase is Phase.RUNNING or ran):
            self._trouble(Trouble(reason, Cause.NODE_LOST, infra_rank, charged=charged, heard=member.heard), now)
        self._advance(now)
        return step

    def step_read(self, number: int | None, standing: Standing) -> Step:
        """The step of the newest checkpoint; None: there is none that can be read."""
        step = self._enter(standing)
        self._failure.read_step(number)
        self._advance(standing.now)
        return step

    def drain(self, nodes: frozenset[int], standing: Standing) -> Step:
        """Slurm is about to take these nodes away."""
        step, now = self._enter(standing), standing.now
        self.selection.draining = nodes
        leaving = nodes & set(self.group)
        at_once = self.phase is Phase.RUNNING and self.job.settings.interruption.drain_now
        if leaving and at_once and self.selection.can_replace(leaving, self.group, now):
            self._trouble(policy.trouble_of_drain(self.job, leaving), now)
        return step

    # -- messages to nodes

    def _stand_by(self, member: Member, *, watch: bool = True) -> None:
        self._mail(member, self.current.standby(self.ledger, self._standing.age, watch=watch))

    def _run(self, member: Member, group: str, group_rank: int) -> None:
        member.running, member.cycle = True, self.cycle
        self._mail(member, self.current.run(group, group_rank, self.ledger, self._standing.age))

    def watch(self, standing: Standing) -> Step:
        """Check the bounds, and whether the job can grow. For each heartbeat with a majority, after `advance`."""
        step, now = self._enter(standing), standing.now
        self._look_at_hang(now)
        if self.phase is Phase.JOINING and now - self._since >= self.job.timeouts.join:
            self._step.verdict = Verdict(Outcome.INTERRUPTED, self.selection.too_few(now), ending=Ending.NOT_JOINED)
        elif self.phase is Phase.STOPPING:
            self._watch_stopping(now)
        elif self.job.settings.placement.grow_now and (size := self.selection.can_grow(self.group, now)):
            self._trouble(policy.trouble_of_growth(len(self.group), size), now)
        return step

    def _watch_stopping(self, now: float) -> None:
        running = self._members.running()
        if self._failure.release(now):
            self._tell_to_stop(running & set(self.group))
        if suspects := self._failure.suspects(now) & running:
            self._do(self.announcements.suspects(suspects))
        if running and (bound := self._failure.overdue(now)) is not None:
            reason = f"{self.job.names_of(sorted(running))} did not stop its workers within {bound:g} s"
            self._step.verdict = Verdict(Outcome.INTERRUPTED, reason, ending=Ending.NOT_STOPPED)

    # -- cycles

    def advance(self, standing: Standing) -> Step:
        """Look whether a new cycle can begin, or the job has to end."""
        step = self._enter(standing)
        self._advance(standing.now)
        return step

    def begin(self, standing: Standing) -> Step:
        """Begin a new cycle, if the pause is over and nodes suffice. For a `ready` Step that the leadership permits."""
        step, now = self._enter(standing), standing.now
        if self.phase is Phase.JOINING:
            self._begin_with(self._succession.first(now), now)
        else:
            self._decide(now)
            if (decision := self._failure.decision) is not None and now >= self._failure.not_before:
                self._begin_with(self._succession.after(self.group, decision, now), now)
        return step

    def _advance(self, now: float) -> None:
        if self.phase is Phase.JOINING:
            self._step.ready = self.selection.enough(self._since, now)
        elif self.phase is Phase.STOPPING:
            failure = self._failure
            if failure.decision is None and (last := failure.last_word(self._standing.wall, now)) is not None:
                self._tell(last, now)
                self._step.verdict = last.verdict
            else:
                self._step.ready = not self._members.anybody_runs()

    def _decide(self, now: float) -> None:
        """What the failure leads to, now that all have stopped; once."""
        failure, wall, progressed = self._failure, self._standing.wall, self.current.progressed
        may_go = partial(self.selection.may_go, former=self.group, now=now)
        if failure.decision is None and (decision := failure.settle(wall, now, may_go, progressed=progressed)):
            self._take_over(decision.ledger)
            self._tell(decision, now)

    def _begin_with(self, found: Successors, now: float) -> None:
        if found.group is not None:
            self._start(found.group, found.choice, now, found.after)
        elif found.shortage is not None:
            self._do(Announce(found.shortage))
        self._step.verdict = found.verdict

    def _start(self, group: tuple[int, ...], choice: str, now: float, after: str = "") -> None:
        """`choice`, `after`: see CycleStarted."""
        former = self.group
        self._become(Phase.RUNNING)
        self.current.succeed(group, self._members[group[0]], now, fresh=self._failure.fresh)
        self._since = now
        self.tally.started(former, group)
        assert self.cycle is not None
        self._failure.enter_fresh(self.cycle)
        self._step.actions += self.announcements.began(
            facts.CycleStarted(self.cycle, former, group, choice, after), now
        )
        folded = format_ranks(group)
        for group_rank, node in enumerate(group):
            self._run(self._members[node], folded, group_rank)
        for member in self._members:
            if member.registered and member.node.infra_rank not in self.current.pending:
                self._stand_by(member)

    # -- the end of a cycle

    def _trouble(self, trouble: Trouble, now: float) -> None:
        """The running cycle cannot go on: stop it. More of the kind may come until all have stopped."""
        if self.phase is Phase.RUNNING:
            self._end_cycle(trouble, now)
        elif self.phase is Phase.STOPPING and self._failure.add(trouble, self._standing.wall):
            self._tell_to_stop(self._members.running() & set(self.group))

    def _end_cycle(self, trouble: Trouble, now: float) -> None:
        self._become(Phase.STOPPING)
        self._hangs.end()
        running = self._members.running() & set(self.group)
        at_once = self._failure.begin(trouble, running, self.current, self._since, self._standing.wall, now)
        self._do(self.announcements.failed(self.cycle, trouble, now))
        if self.job.settings.step_file:
            self._do(ReadStep())
        self._tell_to_stop(running if at_once else ())

    def _tell_to_stop(self, nodes: Collection[int]) -> None:
        stop = self.current.stop(self._failure.grace)
        for node in sorted(nodes):
            if self._members[node].registered:
                self._mail(self._members[node], stop)

    def _tell(self, decision: Decision, now: float) -> None:
        self._step.actions += self.announcements.decided(decision, self._failure, self.cycle, self.group, now)

    def _enter(self, standing: Standing) -> Step:
        """Begin a call; what it returns in the end is filled meanwhile."""
        self._standing, self._step = standing, Step()
        self.selection.eligible = standing.eligible
        return self._step

    def _mail(self, member: Member, message: messages.ToAgent) -> None:
        self._do(member.mail(message))

    def _do(self, action: CoordinatorAction) -> None:
        self._step.actions.append(action)

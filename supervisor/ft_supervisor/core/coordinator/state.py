"""The parts of a coordinator, and the questions that concern several of them.

Status and metrics read a CoordinatorState; only CoordinatorMachine changes it.
"""

from __future__ import annotations

from ft_supervisor.core.coordinator.account import Account
from ft_supervisor.core.coordinator.cycle_step import Standing
from ft_supervisor.core.coordinator.cycles import Cycles
from ft_supervisor.core.coordinator.interruptions import Interruptions
from ft_supervisor.core.coordinator.joining import Joining
from ft_supervisor.core.coordinator.leadership import Leadership, Role
from ft_supervisor.core.coordinator.verdict_commit import Stage, VerdictCommit
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction
from ft_supervisor.core.protocol.model import Cycle, Job, JobPhase, Memory, Node
from ft_supervisor.core.protocol.plausible import Heights
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.protocol.summary import Summary
from ft_supervisor.core.quorum.members import Member
from ft_supervisor.core.transitions import check_invariants


class CoordinatorState:
    """One coordinator's. `cycles` is made anew with each term. All times in seconds of its own clock."""

    def __init__(
        self, job: Job, node: Node, incarnation: int, memory: Memory, now: float, epoch: float, waited: float
    ) -> None:
        self.job = job
        self.node = node
        self.leadership = Leadership(job, node, incarnation, memory)
        self.cycles = Cycles(job, self.leadership.members, self.leadership.election.term or 0, now)
        self.joining = Joining(job, self.leadership.members, self.cycles.selection, now)
        self.commit = VerdictCommit()
        self.interruptions = Interruptions(job, now)
        self.account = Account(job, now - waited, epoch)
        self.step: tuple[int, float] | None = None
        """The newest training step that a node has told in this term, and when."""
        self._epoch = epoch
        self._known = Heights().with_(memory)
        self._cycles_known = 0
        """How many cycles the nodes know of."""

    def begin_term(self, now: float) -> None:
        """Another view of the training, for the term that this coordinator has just come to lead."""
        term = self.leadership.election.term
        assert term is not None
        self.step = None
        self.cycles = Cycles(self.job, self.leadership.members, term, now)
        self.joining = Joining(self.job, self.leadership.members, self.cycles.selection, now)

    def withdraw(self) -> None:
        """Forget what was proposed in a term that is over."""
        self.commit = VerdictCommit()

    @property
    def phase(self) -> JobPhase:
        """Return where the job is."""
        role = self.leadership.role
        return JobPhase(self.cycles.phase if role is Role.LEADING else role)

    @property
    def majority(self) -> bool:
        """Whether it had the majority's proof at its last tick, without which it decides nothing."""
        return self.leadership.term is not None and self.leadership.has_majority

    def wall(self, now: float) -> float:
        """Seconds since the epoch by our clock."""
        return self._epoch + now

    def standing(self, now: float) -> Standing:
        """What Cycles needs to know of the leadership."""
        leadership = self.leadership
        return Standing(now, self.wall(now), leadership.majority.age(now), leadership.rosters.eligible)

    def waiting(self, now: float) -> list[Announce]:
        """The nodes that the job waits for before its first cycle, when that is to be announced."""
        return self.joining.announce(now) if self.phase is JobPhase.JOINING else []

    def may_start(self, now: float) -> bool:
        """Whether the leadership permits a new cycle, and no signal says that the job may just be ending."""
        return not self.interruptions.told_to_end and self.leadership.may_start(now)

    # -- what nodes know

    def saw(self, actions: list[CoordinatorAction], now: float) -> list[CoordinatorAction]:
        """Enter what an event has led to into the account. Return the actions."""
        self.account.saw(actions, self.cycles.current, now)
        return actions

    def hear(self, message: messages.ToCoordinator, member: Member, now: float) -> None:
        """A node has sent a message of our term."""
        member.heard = now
        self.account.hear(message, now)
        if isinstance(message, messages.AtStep):
            self.step = message.step, now

    def learn(self, message: messages.Register, now: float) -> None:
        """A node has registered."""
        memory = message.memory
        self.account.hear(message, now)
        self._known = self._known.with_(memory)
        if memory.newest is not None:
            self._cycles_known = max(self._cycles_known, memory.newest.n + 1)

    def heights(self) -> Heights:
        """The highest numbers that are known, our own term's cycles included: a message may not leap above them."""
        cycle, ledger, known = self.cycles.cycle, self.cycles.ledger, self._known
        return Heights(
            max(known.term, self.leadership.election.term or 0),
            max(known.cycle, cycle.n if cycle else 0),
            max(known.entries, ledger.entries),
            max(known.roster, self.leadership.roster.number),
        )

    # -- at the end

    def summary(self, now: float) -> Summary:
        """The job's story, as far as this coordinator knows it: of cycles before its term only how many there were."""
        cycle: Cycle | None = self.cycles.cycle
        return self.cycles.tally.summary(
            max(self._cycles_known, cycle.n + 1 if cycle else 0),
            self.leadership.takeovers,
            self.account.cost(now, over=True),
        )

    def lost(self) -> str:
        """The infra_ranks of nodes that are not here any more, and have not said Goodbye; folded."""
        here = {m.node.infra_rank for m in self.leadership.members if m.registered or m.gone}
        return format_ranks(rank for rank in range(len(self.job.nodes)) if rank not in here)

    def deputy(self) -> int | None:
        """The node that sees to the job's end in Slurm where Slurm does not answer ours: slurmctld may have lost this
        node alone, and taken it out of the job. None where Slurm answers."""
        own = self.node.infra_rank
        here = (m.node.infra_rank for m in self.leadership.members if m.registered and m.node.infra_rank != own)
        return min(here, default=None) if self.interruptions.away else None

    def validate(self) -> None:
        """Raise InvalidState if an invariant does not hold. For tests: takes time."""
        self.leadership.validate()
        self.commit.validate()
        self.cycles.validate()
        role, commit = self.leadership.role, self.commit
        check_invariants(
            role,
            {
                "a verdict is proposed or known": role is not Role.CLOSING or commit.stage is not Stage.OPEN,
                "only one that closes has a proposal": role is Role.CLOSING or commit.proposal is None,
            },
        )

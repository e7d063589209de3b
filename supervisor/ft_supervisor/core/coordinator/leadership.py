"""Whether this coordinator is in charge: its role, and the members, promises and proofs that the role rests on.

A takeover in the order of its events. Files are in core/; a name in parentheses without a file is a method of
Leadership, which coordinator.py calls.

1. The coordinator dies, or its network does. Each agent that misses it connects to the other candidates in turn
   (agent/candidate_search.py) and sends a Register to the one that answers: what its node has promised and knows.
2. CANDIDATE. Each Register is kept (register). Once a majority of the members is present, the candidate chooses a term
   above all known ones (campaign, quorum/election.py) and sends Prepare to every present node: PREPARING.
3. An agent that gets Prepare has its daemon keep the promise: it obeys no coordinator of a lower term any more. Then
   it answers with another Register, which has the term and the node's Memory. Such answers are told from older
   Registers (is_answer) and counted (Election.promise). Other messages of this term wait (postpone, release).
4. Promises of a majority have come: LEADING (take_charge). A member that has not promised is taken to run workers
   until it registers or is lost. If the promises do not come in time, 2 begins again with a higher term (retry).
5. The coordinator goes on from the memories of the promises (CoordinatorMachine._take_charge). One has accepted a
   verdict: it may be the job's already, and is proposed again (verdict_commit.py): CLOSING. Otherwise Cycles.adopt
   takes over the newest cycle, and each node that runs it gets Continue: its workers notice nothing.
6. The list of members is proposed anew, in the new term (quorum/roster_change.py). Only when a majority keeps it are
   its members eligible for a new cycle.
7. Each tick publishes a round (pulse), agents write the rounds back, and Heard brings these echoes (beat). A round
   that a majority has read proves that it was there, and is a lease for the agents (quorum/lease.py). Decisions need a
   young proof, a new cycle one that is younger than the fence of the last lost node (quorum/majority.py).
8. A member that stays silent for node_lost is lost (silent, lose): Cycles.missing stops its cycle, and it leaves the
   list (change_roster).

The former coordinator may live. When a node registers with the promise of a higher term, or when it notices that it has
stood still for too long, it is a CANDIDATE again (step_down). All times are seconds of the coordinator's own clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction, LookForVerdict, Mail, Pulse
from ft_supervisor.core.protocol.model import NO_PROMISE, Cycle, Job, Memory, Node, Roster
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.quorum.election import Election
from ft_supervisor.core.quorum.majority import Majority
from ft_supervisor.core.quorum.members import Member, Members
from ft_supervisor.core.quorum.roster import first_candidate, first_term
from ft_supervisor.core.quorum.roster_change import RosterChange
from ft_supervisor.core.transitions import Transitions, check_invariants, check_transition


class Role(StrEnum):
    """What this coordinator does. The names are also what `status` shows."""

    CANDIDATE = "candidate"
    PREPARING = "preparing"
    LEADING = "leading"
    CLOSING = "closing"


_VERDICT_FOUND = "the key of its own store holds the job's verdict"

ROLES: Transitions[Role] = {
    Role.CANDIDATE: {Role.PREPARING: "a majority of the members is present", Role.CLOSING: _VERDICT_FOUND},
    Role.PREPARING: {
        Role.LEADING: "promises of a majority",
        Role.CANDIDATE: "no promises in time | a node has promised a higher term",
        Role.CLOSING: _VERDICT_FOUND,
    },
    Role.LEADING: {
        Role.CLOSING: "a verdict is proposed | the job's verdict is known",
        Role.CANDIDATE: "stood still | a node has promised a higher term",
    },
    Role.CLOSING: {Role.CANDIDATE: "stood still | a node has promised a higher term, before the verdict is decided"},
}
"""The next roles of each role, and what leads there. A fresh job's first coordinator begins as LEADING."""


class Leadership:
    """The role of one coordinator, with its data. `members` are the nodes that it knows."""

    def __init__(self, job: Job, node: Node, incarnation: int, memory: Memory) -> None:
        self.members = Members()
        self.election = Election(job, node.infra_rank, memory)
        self.rosters = RosterChange(self.election.roster)
        self.majority = Majority(job.timeouts)
        self.takeovers = 0
        """How often this coordinator has taken over."""
        self.has_majority = False
        """Whether a majority was certainly there at the last `look`."""
        self._job = job
        self._early: list[messages.ToCoordinator] = []
        self._role = Role.CANDIDATE
        if incarnation == 1 and node.infra_rank == first_candidate(job) and memory.promise == NO_PROMISE:
            self.election.term = first_term(job)
            self.rosters.begin()
            self._role = Role.LEADING

    @property
    def role(self) -> Role:
        """What this coordinator does."""
        return self._role

    def become(self, role: Role) -> None:
        """Change the role. Raises InvalidState if ROLES has no such way."""
        check_transition(ROLES, self._role, role)
        self._role = role

    @property
    def term(self) -> int | None:
        """The term in which this coordinator is in charge; None when it is not."""
        return None if self._role in (Role.CANDIDATE, Role.PREPARING) else self.election.term

    @property
    def roster(self) -> Roster:
        """The list of members that counts for this coordinator."""
        return self.rosters.roster if self.term is not None else self.election.roster

    def validate(self) -> None:
        """Raise InvalidState if an invariant does not hold. For tests: takes time."""
        term, listed = self.election.term, frozenset(parse_ranks(self.rosters.roster.members))
        check_invariants(
            self._role,
            {
                "there is a term": self._role in (Role.CANDIDATE, Role.CLOSING) or term is not None,
                "promises are asked for": self._role is not Role.PREPARING or self.election.asked_at is not None,
                "messages wait only for promises": not self._early or self._role is Role.PREPARING,
                "eligible nodes are members": self._role is not Role.LEADING or self.rosters.eligible <= listed,
                "no workers run on a node that is lost or gone, or has no agent": not any(
                    m.running and (m.agentless or not m.here) for m in self.members
                ),
            },
        )

    # -- nodes come

    def register(self, message: messages.Register, now: float) -> Member | None:
        """Take a node on (again); None if the message is older than what is known of it."""
        member = self.members.register(message, now)
        if member is not None:
            self.majority.proof.echo(message.infra_rank, message.round)
            self.election.hear(message)
        return member

    def beat(self, infra_rank: int, round_: int, now: float) -> list[Mail]:
        """A node's heartbeat has moved: it has read this round."""
        self.majority.proof.echo(infra_rank, round_)
        member = self.members.get(infra_rank)
        if member is None:
            return []
        member.heard = now
        # A lost one does not know that it is, having stood still: it shall register anew.
        return [self.prepare(member)] if member.lost and self.term is not None else []

    def prepare(self, member: Member) -> Mail:
        """Ask this node to promise our term."""
        assert self.election.term is not None
        member.asked = self.election.term
        return member.mail(messages.Prepare(self.election.term))

    # -- CANDIDATE and PREPARING

    def campaign(self, now: float) -> list[CoordinatorAction]:
        """As a CANDIDATE, ask for promises if a majority is present."""
        if self._role is not Role.CANDIDATE or 2 * len(self.members) < len(parse_ranks(self.election.roster.members)):
            return []  # without counting: 1,000 Registers shall not cost 1,000 squared
        present = self.members.present(now, self._job.timeouts.coordinator)
        if not self.election.may_ask(present):
            return []
        term = self.election.ask(now)
        self.become(Role.PREPARING)
        asked = Announce(facts.Preparing(term, len(present)))
        return [asked, *(self.prepare(self.members[infra_rank]) for infra_rank in sorted(present))]

    def is_answer(self, message: messages.Register, member: Member) -> bool:
        """Whether this Register, of a node that has promised our term, answers our Prepare; if so, it is a proof."""
        if member.asked is None or member.asked != self.election.term:
            return False
        if self.election.asked_at is not None:
            self.majority.proof.promise(message.infra_rank, self.election.asked_at)
        return True

    def retry(self, now: float) -> list[CoordinatorAction]:
        """With each tick of a CANDIDATE, and of one that is PREPARING: ask for promises (again) when it is time to."""
        if self._role is Role.PREPARING:
            if not self.election.is_over(now):
                return []
            self._give_up()
        return self.campaign(now)

    def postpone(self, message: messages.ToCoordinator) -> None:
        """Keep a message of a node that has promised our term until a majority has."""
        self._early.append(message)

    def release(self) -> list[messages.ToCoordinator]:
        """The messages that were kept, once this coordinator is in charge; each only once."""
        if not self._early or self._role is Role.PREPARING:
            return []
        early, self._early = self._early, []
        return early

    def take_charge(self, now: float) -> list[CoordinatorAction]:
        """Lead, with promises of a majority. A member without one may be running anything, until it registers."""
        election, known = self.election, self.members
        assert election.term is not None
        self.become(Role.LEADING)
        self.takeovers += 1
        self.members, self.rosters = Members(), RosterChange(election.roster)
        for rank in parse_ranks(election.roster.members):
            former = known.get(rank)
            self.members.expect(former.node if former else Node(rank, self._job.nodes[rank], ""), now)
        for message in election.promises.values():
            self.members.register(message, now)
        self.rosters.take_over(election.term)
        self.majority.look(self.rosters.roster)
        took_charge = Announce(facts.TookCharge(election.term, len(election.promises)))
        return [took_charge, self.pulse(now), LookForVerdict()]

    def step_down(self, reason: str) -> list[CoordinatorAction]:
        """Be a CANDIDATE again: another coordinator may be in charge."""
        actions: list[CoordinatorAction] = []
        if self.term is not None:
            actions.append(Announce(facts.SteppedDown(self.term, reason)))
            self.election.roster = max(self.election.roster, self.rosters.roster, key=lambda roster: roster.stamp)
        self._give_up()
        return actions

    def _give_up(self) -> None:
        """What nodes have said on top of promises that are not enough is of no use."""
        self.become(Role.CANDIDATE)
        self._early = []

    # -- in charge

    def pulse(self, now: float) -> Pulse:
        """The next round, with our term or that of the coordinator which our own node follows."""
        proof = self.majority.proof
        lease = proof.lease(self.rosters.roster) if self.term is not None else 0
        term = self.election.elsewhere if self.term is None else self.term
        return Pulse(proof.publish(now), term, lease)

    def may_decide(self, now: float) -> bool:
        """Whether a majority was certainly with us just now."""
        return self.majority.is_here(self.rosters.roster, now)

    def may_start(self, now: float) -> bool:
        """Whether a majority was certainly with us just now, and no other coordinator in charge since the last lost
        node's fence."""
        return self.may_decide(now) and self.majority.no_rival_possible()

    def look(self, now: float) -> list[CoordinatorAction]:
        """Count the majority for this tick; announce when that has changed."""
        had, self.has_majority = self.has_majority, self.may_decide(now)
        members = self.rosters.roster.members
        if had and not self.has_majority:
            return [Announce(facts.MajorityLost(members))]
        if self.has_majority and not had:
            assert self.term is not None
            return [Announce(facts.MajorityBack(self.term, members))]
        return []

    def silent(self, now: float) -> list[Member]:
        """Members that were not heard for node_lost: to be lost, one after the other."""
        return [m for m in self.members if m.here and now - m.heard >= self._job.timeouts.node_lost]

    def lose(self, member: Member) -> None:
        """Take this node for dead. Its fence has ended whatever ran there (quorum/lease.py)."""
        self.majority.lost(member.heard)
        member.lost = True
        member.stopped()
        member.times_lost += 1

    def change_roster(self) -> list[CoordinatorAction]:
        """Propose a list without lost members and with new ones, if it differs and no change is under way."""
        if self.term is None or self.rosters.pending:
            return []
        listed = parse_ranks(self.rosters.roster.members)
        here = {member.node.infra_rank for member in self.members if member.here}
        members = [rank for rank in listed if rank in here] + sorted(here - set(listed))
        roster = self.rosters.change(self.term, members) if members else None
        return self._spread(roster) if roster is not None else []

    def keep_roster(self, infra_rank: int, stamp: tuple[int, int]) -> list[CoordinatorAction]:
        """This node's daemon keeps the roster with this stamp; the next one is proposed when it is its turn."""
        following = self.rosters.keep(infra_rank, stamp)
        return self._spread(following) if following is not None else []

    def _spread(self, roster: Roster) -> list[CoordinatorAction]:
        assert self.election.term is not None
        changed = Announce(facts.RosterChanged(roster.number, roster.members, roster.former))
        return [changed, *self.mail_all(messages.Members(self.election.term, roster))]

    def mail_all(self, message: messages.ToAgent) -> Iterable[Mail]:
        """This message for every registered member."""
        return [member.mail(message) for member in self.members if member.registered]


def knows_newer(memory: Memory, cycle: Cycle | None) -> bool:
    """Whether a node knows a cycle that is newer than `cycle`, the newest that the coordinator knows."""
    return memory.newest is not None and (cycle is None or memory.newest > cycle)

"""Parts of the core with one broken rule of the takeover each: terms, majorities, promises, leases."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.coordinator.leadership import Leadership, Role
from ft_supervisor.core.coordinator.verdict_commit import Stage, VerdictCommit
from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.protocol import actions, events, messages
from ft_supervisor.core.protocol.model import NO_PROMISE, Roster, Verdict
from ft_supervisor.core.quorum.election import Election
from ft_supervisor.core.quorum.lease import Proof
from ft_supervisor.core.quorum.members import Members
from ft_supervisor.core.quorum.roster_change import RosterChange


class HeedsOlderTerms(AgentMachine):
    """Accepts mail of a lower term than the one it has promised."""

    def _mail(self, message: messages.ToAgent, now: float) -> None:
        if message.term < self.memory.promise:
            message = replace(message, term=self.memory.promise)
        super()._mail(message, now)


class BelievesWhatIsSaidOfFormerAgents(CoordinatorMachine):
    """Takes the end of any agent of a node for that of its present one."""

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        member = self.members.get(message.infra_rank)
        if isinstance(message, messages.AgentGone) and member is not None and member.register is not None:
            message = replace(message, incarnation=member.incarnation)
        super()._receive(message, now)


class IgnoresNewerPromises(CoordinatorMachine):
    """Goes on in its term with nodes that have promised a higher one."""

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        if self.term is not None and message.term > self.term:
            if isinstance(message, messages.Register):
                message = replace(message, memory=replace(message.memory, promise=self.term))
            else:
                message = replace(message, term=self.term)
        super()._receive(message, now)


def any_minority(members: Sequence[int], present: Collection[int]) -> bool:
    """Return whether any member is present, instead of a majority."""
    return any(member in present for member in members)


class AsksOnlyTheNewRoster(RosterChange):
    """Changes the members with a majority of the new roster alone."""

    def _propose(self, roster: Roster) -> Roster:
        return super()._propose(replace(roster, former=""))


class ForgetsPromises(DaemonMachine):
    """Starts new agents and coordinators without the promise."""

    def handle(self, event: events.DaemonEvent, now: float) -> list[actions.DaemonAction]:
        return [
            replace(action, memory=replace(action.memory, promise=NO_PROMISE))
            if isinstance(action, actions.SpawnAgent | actions.SpawnCoordinator)
            else action
            for action in super().handle(event, now)
        ]


class DoesNotWaitForStops(Members):
    """Begins the next cycle although nodes still run workers."""

    def anybody_runs(self) -> bool:
        return False

    def healthy(self, now: float, silence: float) -> set[int]:
        return self.present(now, silence)


class LeasesWithoutEchoes(Proof):
    """Publishes every round as a lease, without a majority's echo."""

    def lease(self, roster: Roster) -> int:
        return self.round


class NeverFences(AgentMachine):
    """Does not fence its workers, and gives neither daemon nor guard a deadline for it."""

    @property
    def fence_at(self) -> float | None:
        return None


class CountsItsOwnDelay(Members):
    """Counts time in which the coordinator stood still against its nodes."""

    def forgive(self, seconds: float, now: float) -> None:
        """Forgive nothing."""


class GoesOnAfterAStall(CoordinatorMachine):
    """Stays in charge and decides after any suspension, with no new proof of its majority.

    Only the second is a mistake: decisions of a coordinator that has not stepped down do not count without a new proof.
    """

    def _late(self, seconds: float, stalled: bool, now: float) -> None:
        super()._late(seconds, False, now)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._leadership.may_decide = lambda now: True  # type: ignore[method-assign]


class IgnoresAcceptedVerdicts(CoordinatorMachine):
    """Takes charge, and ignores the verdict that nodes have accepted in an earlier term."""

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        if isinstance(message, messages.Register):
            message = replace(message, memory=replace(message.memory, accepted=None))
        super()._receive(message, now)


class DecidesWithOneKeeper(VerdictCommit):
    """Decides a verdict as soon as one node keeps it."""

    def keep(self, infra_rank: int, roster: Roster) -> Verdict | None:
        return self.proposal if self.stage is Stage.PROPOSED else None


class LeadsOnceAMajorityIsPresent(Leadership):
    """Takes charge when it asks for promises, and does not wait for them."""

    def campaign(self, now: float) -> list[actions.CoordinatorAction]:
        asked = super().campaign(now)
        if asked:
            self.become(Role.CANDIDATE)
            self.become(Role.LEADING)
        return asked


class ForgetsItsProposal(VerdictCommit):
    """Forgets its proposal once a node has kept it."""

    def keep(self, infra_rank: int, roster: Roster) -> Verdict | None:
        kept = super().keep(infra_rank, roster)
        self.proposal = None
        return kept


class SharesTerms(Election):
    """Asks for terms that other candidates may ask for as well."""

    def ask(self, now: float) -> int:
        self.term = self._highest = self._highest + 1
        self.asked_at, self.promises = now, {}
        return self.term

"""The machines with one rule broken each. A rule that is guarded on two sides is broken on both.

Each is a set of replaced classes or functions of the core: (module, name) -> what is there instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from unittest.mock import patch

from tests.simulation import themes
from tests.simulation.themes import Theme
from tests.simulation.world import Machines

from ft_supervisor.core import actions, coordinator, events, messages, orders, roster
from ft_supervisor.core.agent import AgentMachine
from ft_supervisor.core.closing import Closing
from ft_supervisor.core.coordinator import CoordinatorMachine
from ft_supervisor.core.cycles import Cycles, Phase
from ft_supervisor.core.daemon import DaemonMachine
from ft_supervisor.core.election import Election
from ft_supervisor.core.lease import Proof
from ft_supervisor.core.members import Member, Members
from ft_supervisor.core.model import NO_PROMISE, Cycle, Failure, Memory, Outcome, Roster, Verdict
from ft_supervisor.core.rosterchange import RosterChange


@dataclass(frozen=True)
class Mutant:
    """`says`: the numbers of the invariants that it may break; `theme`: the faults that show it, if any will not do."""

    name: str
    says: tuple[str, ...]
    theme: Theme | None = None
    machines: Machines = field(default_factory=Machines)
    parts: tuple[tuple[ModuleType, str, object], ...] = field(default=(), repr=False)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The core's parts are replaced."""
        patches = [patch.object(module, name, part) for module, name, part in self.parts]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


def _agent(machine: type[AgentMachine], *says: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, says, theme, Machines(agent=machine))


def _coordinator(machine: type[CoordinatorMachine], *says: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, says, theme, Machines(coordinator=machine))


def _daemon(machine: type[DaemonMachine], *says: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, says, theme, Machines(daemon=machine))


def _part(name: str, part: type, *says: str, theme: Theme | None = None) -> Mutant:
    """Of the coordinator."""
    return Mutant(part.__name__, says, theme, parts=((coordinator, name, part),))


# -- the rules of takeover


class HeedsOlderTerms(AgentMachine):
    """Takes mail of older terms than it has promised."""

    def _mail(self, message: messages.ToAgent, now: float) -> None:
        if message.term < self.memory.promise:
            message = replace(message, term=self.memory.promise)
        super()._mail(message, now)


class IgnoresNewerPromises(CoordinatorMachine):
    """Goes on in its term with nodes that have promised a newer one."""

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        if self.term is not None and message.term > self.term:
            if isinstance(message, messages.Register):
                message = replace(message, memory=replace(message.memory, promise=self.term))
            else:
                message = replace(message, term=self.term)
        super()._receive(message, now)


def any_minority(members: Sequence[int], present: Collection[int]) -> bool:
    """Instead of a majority."""
    return any(member in present for member in members)


class AsksOnlyTheNewList(RosterChange):
    """A change of members is kept by a majority of the new list alone."""

    def _propose(self, roster: Roster) -> Roster:
        return super()._propose(replace(roster, former=""))


class ForgetsPromises(DaemonMachine):
    """A new agent, and a new coordinator, know of no promise."""

    def handle(self, event: events.DaemonEvent, now: float) -> list[actions.DaemonAction]:
        return [
            replace(action, memory=replace(action.memory, promise=NO_PROMISE))
            if isinstance(action, actions.SpawnAgent | actions.SpawnCoordinator)
            else action
            for action in super().handle(event, now)
        ]


class WaitsForNobodyToStop(Members):
    """Whoever runs is no hindrance to the next cycle."""

    def anybody_runs(self) -> bool:
        return False

    def healthy(self, now: float, silence: float) -> set[int]:
        return self.present(now, silence)


class LeasesToAnybody(Proof):
    """Every round is a lease, without a majority's echo."""

    def lease(self, roster: Roster) -> int:
        return self.round


class NeverFences(AgentMachine):
    """Nor lets its daemon do it."""

    def _fence_is_over(self, now: float) -> bool:
        return False

    def handle(self, event: events.AgentEvent, now: float) -> list[actions.AgentAction]:
        return [
            replace(action, order=replace(action.order, fence_in=None))
            if isinstance(action, actions.Tell) and isinstance(action.order, orders.Alive)
            else action
            for action in super().handle(event, now)
        ]


class CountsItsOwnDelay(Members):
    """Time in which the coordinator stood still counts against its nodes."""

    def forgive(self, seconds: float, now: float) -> None:
        """Never."""


class GoesOnAfterAStall(CoordinatorMachine):
    """However long it stood still, it goes on as if it were in charge, on the strength of an old majority. (Not to step
    down is no mistake by itself: what it decides without a new proof of its majority is nothing.)"""

    def _late(self, seconds: float, stalled: bool, now: float) -> None:
        super()._late(seconds, False, now)

    def may_decide(self, now: float) -> bool:
        return True


class TakesAnyVerdictForIts(CoordinatorMachine):
    """In charge anew, it does not go by the verdict that nodes have accepted before."""

    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        if isinstance(message, messages.Register):
            message = replace(message, memory=replace(message.memory, accepted=None))
        super()._receive(message, now)


class WantsNoKeepers(Closing):
    """A verdict is the job's as soon as one node keeps it."""

    def keep(self, infra_rank: int, roster: Roster, lost: tuple[str, ...]) -> actions.Record | None:
        return None if self.proposal is None else self.settle(self.proposal, lost)


class TermsOfAnybody(Election):
    """All candidates take the same terms."""

    def ask(self, now: float) -> int:
        self.term = self._highest = self._highest + 1
        self.asked_at, self.promises = now, {}
        return self.term


# -- the rules of cycles


class WaitsOnlyForTheFirstToStop(Cycles):
    """The first that has stopped stands for all."""

    def _stopped(self, member: Member, now: float) -> None:
        for other in self._members:
            if self.phase is Phase.STOPPING:
                other.stopped()
        super()._stopped(member, now)


class GivesSuspectsUp(Cycles):
    """Does not wait for node_lost where the probe had no answer."""

    def _watch_stopping(self, now: float) -> None:
        if now - self._since >= self.job.timeouts.probe:
            for infra_rank in self._suspects & self._members.running():
                self._members[infra_rank].stopped()
        super()._watch_stopping(now)


class OneSuccessIsEnough(Cycles):
    def _succeeded(self, member: Member, now: float) -> None:
        self._pending.clear()
        super()._succeeded(member, now)


class CountsSuccessesOfFormerCycles(Cycles):
    def hear(
        self,
        message: messages.WorkersFailed | messages.WorkersSucceeded | messages.Stopping | messages.WorkersStopped,
        member: Member,
        now: float,
    ) -> None:
        if isinstance(message, messages.WorkersSucceeded) and self.cycle is not None:
            message = replace(message, cycle=self.cycle)
        super().hear(message, member, now)


class ForgetsTheLost(CoordinatorMachine):
    """Says that a node is lost, and chooses it nevertheless."""

    def _lose(self, member: Member, now: float) -> None:
        super()._lose(member, now)
        member.lost, member.heard = False, now


class LosesNobody(CoordinatorMachine):
    def _lose(self, member: Member, now: float) -> None:
        member.heard = now


class ShiftsRanks(Cycles):
    """The next group is sorted by infra_rank."""

    def _start(self, group: tuple[int, ...], reason: str, now: float) -> None:
        super()._start(tuple(sorted(group)), reason, now)


class TwoOfTheSameRank(Cycles):
    def _run(self, member: Member, group_rank: int, now: float) -> None:
        super()._run(member, max(0, group_rank - 1), now)


class NeverGivesUp(Cycles):
    def _too_few(self, healthy: int, now: float) -> None:
        """Wait for ever."""


class JoinsForEver(Cycles):
    def tick(self, now: float) -> None:
        self._since = now if self.phase is Phase.JOINING else self._since
        super().tick(now)


class DoesNotListenToRegisters(Cycles):
    """Does not listen to what a node says of the running cycle, and waits for an agent that ran it already."""

    def _welcome_active(self, message: messages.Register, member: Member, now: float) -> None:
        assert self.cycle is not None
        if self.cycle.term == self._term:
            message = replace(message, memory=Memory(promise=message.memory.promise))
        super()._welcome_active(message, member, now)


class RecordsWhatItLikes(CoordinatorMachine):
    """Closes with its own verdict, and not with the one that was kept."""

    def _ended(self, verdict: Verdict, now: float) -> None:
        super()._ended(Verdict(Outcome.FAILED, self.node.name), now)


class RunsAfterTheVerdict(CoordinatorMachine):
    def _ended(self, verdict: Verdict, now: float) -> None:
        super()._ended(verdict, now)
        for member in self.members:
            if member.registered and self.cycle is not None:
                self._cycles._run(member, 0, now)


# -- the rules of nodes


class AcceptsAnyRun(AgentMachine):
    def _be_told_to_run(self, run: messages.Run, now: float) -> None:
        self.memory = replace(self.memory, newest=None)
        super()._be_told_to_run(run, now)


class RunsWithoutALease(AgentMachine):
    def _be_told_to_run(self, run: messages.Run, now: float) -> None:
        self._lease.grant(now)
        super()._be_told_to_run(run, now)


class StartsBesideTheFormer(AgentMachine):
    """A failed worker's peers are left to themselves."""

    def _stop(self, grace: float, now: float) -> None:
        if self._run is not None and self._end_as is None:
            self._gone(self._run.cycle, self._port, now)
        else:
            super()._stop(grace, now)


class SaysStoppedTooEarly(AgentMachine):
    def _be_told_to_stop(self, cycle: Cycle, now: float) -> None:
        self._send(messages.WorkersStopped, cycle=cycle, port=self._port)
        super()._be_told_to_stop(cycle, now)


class NeverStops(AgentMachine):
    def _stop(self, grace: float, now: float) -> None:
        """Leave the workers alone."""


class FailsAndCallsItSuccess(AgentMachine):
    def _exited(self, cycle: Cycle, failures: tuple[Failure, ...], now: float) -> None:
        super()._exited(cycle, (), now)


class RemembersNothing(AgentMachine):
    """Its daemon hears of nothing that its successor would need, except promises."""

    def _remember(self, memory: Memory) -> None:
        self.memory = memory
        self._do(actions.Tell(orders.Remember(Memory(promise=memory.promise))))


class NeverLeaves(AgentMachine):
    def _leave(self, leave: actions.Leave) -> None:
        self._send(messages.Goodbye, verdict=self.memory.verdict)


class SaysGoodbyeTooEarly(AgentMachine):
    """Nobody waits for its workers, though they go on."""

    def _terminate(self, reason: str, now: float) -> None:
        self._send(messages.Goodbye, verdict=None)


class NeverCallsAnybodyElse(AgentMachine):
    """Stays with the coordinator that it knows."""

    def handle(self, event: events.AgentEvent, now: float) -> list[actions.AgentAction]:
        return [
            replace(action, candidates=action.candidates[:1]) if isinstance(action, actions.Dial) else action
            for action in super().handle(event, now)
        ]


class DoesNotGuardTheFence(DaemonMachine):
    """Leaves it to an agent that may stand still."""

    def handle(self, event: events.DaemonEvent, now: float) -> list[actions.DaemonAction]:
        match event:
            case events.Ordered(_, orders.Alive() as alive):
                event = replace(event, order=replace(alive, fence_in=None))
        return super().handle(event, now)


REQUIRED = (
    Mutant(
        "FencesNoOlderTerms",
        ("4", "7", "9", "10"),
        themes.see_saw,
        Machines(agent=HeedsOlderTerms, coordinator=IgnoresNewerPromises),
    ),
    Mutant("AnyMinoritySuffices", ("4", "9", "10"), parts=((roster, "majority", any_minority),)),
    _part("RosterChange", AsksOnlyTheNewList, "4", "9", "10", theme=themes.drift),
    _daemon(ForgetsPromises, "4", "7", "9", "10", theme=themes.see_saw),
    _part("Members", WaitsForNobodyToStop, "10"),
    _part("Proof", LeasesToAnybody, "9", "10"),
    _agent(NeverFences, "10"),
    _part("Members", CountsItsOwnDelay, "lost", theme=themes.stutter),
    _coordinator(GoesOnAfterAStall, "4", "9", "10", "lost", theme=themes.see_saw),
)
"""Without these there is no takeover that can be trusted."""

OTHERS = (
    _coordinator(TakesAnyVerdictForIts, "4", theme=themes.endings),
    _part("Closing", WantsNoKeepers, "4", theme=themes.endings),
    _part("Election", TermsOfAnybody, "9"),
    _part("Cycles", WaitsOnlyForTheFirstToStop, "10"),
    _part("Cycles", GivesSuspectsUp, "10"),
    _part("Cycles", OneSuccessIsEnough, "5"),
    _part("Cycles", CountsSuccessesOfFormerCycles, "5", theme=themes.old_words),
    _coordinator(ForgetsTheLost, "3"),
    _coordinator(LosesNobody, "6"),
    _part("Cycles", ShiftsRanks, "survivors"),
    _part("Cycles", TwoOfTheSameRank, "2"),
    _part("Cycles", NeverGivesUp, "6"),
    _part("Cycles", JoinsForEver, "6"),
    _part("Cycles", DoesNotListenToRegisters, "6"),
    _coordinator(RecordsWhatItLikes, "4"),
    _coordinator(RunsAfterTheVerdict, "4"),
    _agent(AcceptsAnyRun, "7", "9"),
    _agent(RunsWithoutALease, "9", "10", theme=themes.stale_orders),
    _agent(StartsBesideTheFormer, "1"),
    _agent(SaysStoppedTooEarly, "10"),
    _agent(NeverStops, "6"),
    _agent(FailsAndCallsItSuccess, "5"),
    _agent(RemembersNothing, "4", "6", "7"),
    _agent(NeverLeaves, "6"),
    _agent(SaysGoodbyeTooEarly, "10"),
    _agent(NeverCallsAnybodyElse, "8"),
    _daemon(DoesNotGuardTheFence, "10", theme=themes.unguarded),
)

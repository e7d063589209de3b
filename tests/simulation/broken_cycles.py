"""The core with one rule of the cycles, or of the end, broken."""

from __future__ import annotations

from dataclasses import replace

from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.coordinator.cycle_step import Phase, Standing, Step
from ft_supervisor.core.coordinator.cycles import Cycles
from ft_supervisor.core.coordinator.policy import Decision
from ft_supervisor.core.coordinator.succession import Succession, Successors
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.model import Memory, Outcome, Verdict
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.quorum.members import Member


class WaitsOnlyForTheFirstToStop(Cycles):
    """Treats all nodes as stopped when the first one has stopped."""

    def _stopped(self, member: Member, now: float) -> None:
        for other in self._members:
            if self.phase is Phase.STOPPING:
                other.stopped()
        super()._stopped(member, now)


class GivesSuspectsUp(Cycles):
    """Does not wait for node_lost where the probe got no answer."""

    def _watch_stopping(self, now: float) -> None:
        if now - self._failure.since >= self.job.timeouts.probe:
            for infra_rank in self._failure._unheard & self._members.running():
                self._members[infra_rank].stopped()
        super()._watch_stopping(now)


class OneSuccessIsEnough(Cycles):
    """Ends the job with success when the first node has succeeded."""

    def _succeeded(self, member: Member, now: float) -> None:
        self.current.pending.clear()
        super()._succeeded(member, now)


class CountsSuccessesOfFormerCycles(Cycles):
    """Counts a success of any cycle for the current one."""

    def hear(
        self,
        message: messages.OfWorkers,
        member: Member,
        standing: Standing,
    ) -> Step:
        if isinstance(message, messages.WorkersSucceeded) and self.cycle is not None:
            message = replace(message, cycle=self.cycle)
        return super().hear(message, member, standing)


class ForgetsTheLost(CoordinatorMachine):
    """Announces that a node is lost, and chooses it nevertheless."""

    def _lose(self, member: Member, now: float) -> None:
        super()._lose(member, now)
        member.lost, member.heard = False, now


class NeverLosesANode(CoordinatorMachine):
    """Treats each silent node as heard."""

    def _lose(self, member: Member, now: float) -> None:
        member.heard = now


class ShiftsRanks(Cycles):
    """Sorts the next group by infra_rank."""

    def _start(self, group: tuple[int, ...], choice: str, now: float, after: str = "") -> None:
        super()._start(tuple(sorted(group)), choice, now, after)


class TwoOfTheSameRank(Cycles):
    """Gives the nodes with group_rank 0 and 1 both the group_rank 0."""

    def _run(self, member: Member, group: str, group_rank: int) -> None:
        super()._run(member, group, max(0, group_rank - 1))


class NeverGivesUp(Succession):
    """Waits for ever for enough nodes."""

    def _too_few(self, reason: str, decision: Decision, now: float) -> Successors:
        return Successors()


class JoinsForEver(Cycles):
    """Has no limit for the time in which nodes join."""

    def watch(self, standing: Standing) -> Step:
        self._since = standing.now if self.phase is Phase.JOINING else self._since
        return super().watch(standing)


class IgnoresRegisters(Cycles):
    """Ignores a Register's report about the running cycle, and waits for an agent that ran it already."""

    def _welcome_active(self, message: messages.Register, member: Member, now: float) -> None:
        assert self.cycle is not None
        if self.current.is_ours:
            message = replace(message, memory=Memory(promise=message.memory.promise))
        super()._welcome_active(message, member, now)


class ClosesWithItsOwnVerdict(CoordinatorMachine):
    """Closes with its own verdict instead of the one that the nodes have kept."""

    def _close_held(self, verdict: Verdict, now: float) -> None:
        super()._close_held(Verdict(Outcome.FAILED, self.node.name), now)


class RunsAfterTheVerdict(CoordinatorMachine):
    """Sends Run after it has closed."""

    def _close_held(self, verdict: Verdict, now: float) -> None:
        super()._close_held(verdict, now)
        for member in self.members:
            if member.registered and self.cycle is not None:
                step = self.state.cycles._enter(self.state.standing(now))
                self.state.cycles._run(member, format_ranks(self.state.cycles.group), 0)
                self._actions += step.actions

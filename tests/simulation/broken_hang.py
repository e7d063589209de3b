"""Parts of the core with one broken rule about hangs each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ft_supervisor.core.agent import stillness
from ft_supervisor.core.agent.stillness import Stillness
from ft_supervisor.core.coordinator import culprits
from ft_supervisor.core.coordinator.culprits import Witness
from ft_supervisor.core.coordinator.current_cycle import CurrentCycle
from ft_supervisor.core.coordinator.hang_round import HangRounds, _Round
from ft_supervisor.core.coordinator.policy import Trouble
from ft_supervisor.core.coordinator.standstill import Standstill
from ft_supervisor.core.protocol.actions import CoordinatorAction
from ft_supervisor.core.protocol.activity import Activity
from ft_supervisor.core.protocol.evidence import Explanation
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.settings import AutoHang
from ft_supervisor.core.quorum.members import Members

_works = stillness._works


class StopsAtTheFirstAnswer(HangRounds):
    """Goes on as soon as one node has answered."""

    def _waits(self, of: _Round) -> bool:
        return not of.answers


def blames_somebody(witnesses: Sequence[Witness]) -> Explanation:
    """Blame the ranks that wait, if there are any."""
    found = culprits.explain(witnesses)
    waiting = [one.rank for one in witnesses if str(one.rank) != found.culprits]
    return replace(found, culprits=str(min(waiting, default=0)))


class ChargesTheFirst(HangRounds):
    """Charges the node that noticed the hang, where it is not known who began it."""

    def conclude(self, wall: float, now: float, do: Callable[[CoordinatorAction], None]) -> Trouble | None:
        trouble = super().conclude(wall, now, do)
        if trouble is None or trouble.infra_rank is not None or trouble.failure is None:
            return trouble
        return replace(trouble, infra_rank=trouble.failure.infra_rank)


class StopsWhatItIsToTell(HangRounds):
    """Restarts a cycle that stands still, though the settings only ask for a line."""

    def __init__(self, job: Job, members: Members, current: CurrentCycle) -> None:
        super().__init__(job, members, current)
        self._hang = replace(self._hang, auto=AutoHang.RESTART)


class OneNodeIsStill(Standstill):
    """Takes a cycle for still when one of its nodes is."""

    def lasts(self, nodes: Collection[int], now: float) -> float | None:
        found = [seconds for node in nodes if (seconds := super(OneNodeIsStill, self).lasts([node], now)) is not None]
        return max(found, default=None)


class NoNodeIsStill(Standstill):
    """Never takes a cycle for still."""

    def lasts(self, nodes: Collection[int], now: float) -> float | None:
        return None


class IsStillTooEarly(Stillness):
    """Takes workers for still after half of the time."""

    def __init__(self, after: float, per_node: int) -> None:
        super().__init__(after / 2, per_node)


def works_without_a_sign(sign: str) -> Callable[[Activity, Activity, float], bool]:
    """Return a function that looks for all signs of work but this one of Activity's totals."""

    def works(last: Activity, seen: Activity, seconds: float) -> bool:
        return _works(replace(last, **{sign: getattr(seen, sign)}), seen, seconds)

    return works

"""Parts of the core with one broken rule about hangs each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_supervisor.core.coordinator import culprits
from ft_supervisor.core.coordinator.culprits import Witness
from ft_supervisor.core.coordinator.hang_round import HangRounds, _Round
from ft_supervisor.core.protocol.evidence import Explanation


class StopsAtTheFirstAnswer(HangRounds):
    """Goes on as soon as one node has answered."""

    def _waits(self, of: _Round) -> bool:
        return not of.answers


def blames_somebody(witnesses: Sequence[Witness]) -> Explanation:
    """Blame the ranks that wait, if there are any."""
    found = culprits.explain(witnesses)
    waiting = [one.rank for one in witnesses if str(one.rank) != found.culprits]
    return replace(found, culprits=str(min(waiting, default=0)))

"""Decides when a node starts its warm workers: for each local rank one interpreter that has imported `workers.preload`
and waits for a cycle.

    nothing runs here       all that are missing, at once
    a cycle's workers run   one after another, once each of them has sent a heartbeat, or PATIENCE after their start:
                            an import takes a core, which their own start needs
    they are being stopped  none

One that dies is started again after a pause, which doubles each time. Where a preload cannot work, because it raises or
initializes CUDA, no more are started. All times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

PATIENCE = 30.0
"""After so long, workers that send no heartbeats count as started."""
BOUND = 600.0
"""A warm worker that has not imported its modules, or taken up its order, within so long is killed."""
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""The pause after a warm worker's death, which doubles with each death in a row, and its bound."""


class _Rank(StrEnum):
    MISSING = "missing"
    IMPORTING = "importing"
    READY = "ready"
    ORDERED = "ordered"
    """It belongs to a cycle, whose order it may have to finish its import for. There is no second one meanwhile."""


class WarmPlan:
    """The warm workers of one node, by local rank. The owner tells what it sees of them."""

    def __init__(self, local_ranks: Iterable[int]) -> None:
        self.refused = False
        """Whether the preload cannot work, so that none is started any more."""
        self._ranks = dict.fromkeys(local_ranks, _Rank.MISSING)
        self._since: dict[int, float] = {}
        """When those that are importing were started, or others were given their order."""
        self._silent: set[int] = set()
        """The cycle's workers that have sent no heartbeat yet."""
        self._free_at: float | None = 0.0
        """From when on one may be started; None: not while the present workers are being stopped."""
        self._together = True
        """Whether all may be started at once, as nothing runs here."""
        self._deaths = 0
        self._again_at = 0.0

    def idle(self) -> None:
        """Note that no workers are here."""
        self._free_at, self._together = 0.0, True

    def began(self, local_ranks: Iterable[int], now: float) -> None:
        """Note that the workers of a cycle have been started."""
        self._silent = set(local_ranks)
        self._free_at, self._together = now + PATIENCE, False

    def beat(self, local_rank: int) -> None:
        """Note that a worker of the cycle has sent a heartbeat."""
        self._silent.discard(local_rank)
        if not self._silent and not self._together and self._free_at is not None:
            self._free_at = 0.0

    def stopping(self) -> None:
        """Note that the workers are being stopped."""
        self._free_at, self._together = None, False

    def next(self, now: float) -> list[int]:
        """Return the local ranks whose warm workers are to be started now."""
        if self.refused or self._free_at is None or now < max(self._free_at, self._again_at):
            return []
        missing = [rank for rank, state in self._ranks.items() if state is _Rank.MISSING]
        if self._together:
            return missing
        return [] if self._busy else missing[:1]

    @property
    def _busy(self) -> bool:
        """Whether an import takes a core."""
        return not {_Rank.IMPORTING, _Rank.ORDERED}.isdisjoint(self._ranks.values())

    def late(self, now: float) -> list[int]:
        """Return the local ranks whose warm workers have taken BOUND, for their import or to take up their order."""
        return [rank for rank, since in self._since.items() if now >= since + BOUND]

    @property
    def due(self) -> float | None:
        """When `next` or `late` may return something that they do not return now; None: only after news."""
        dues = [since + BOUND for since in self._since.values()]
        wanted = not self.refused and _Rank.MISSING in self._ranks.values()
        if wanted and self._free_at is not None and (self._together or not self._busy):
            dues.append(max(self._free_at, self._again_at))
        return min(dues, default=None)

    # -- what becomes of a rank's warm worker

    def started(self, local_rank: int, now: float) -> None:
        """Note that it was started."""
        self._ranks[local_rank] = _Rank.IMPORTING
        self._since[local_rank] = now

    def ready(self, local_rank: int) -> None:
        """Note that it has imported all."""
        self._since.pop(local_rank, None)
        self._ranks[local_rank] = _Rank.READY
        self._deaths = 0

    def ordered(self, local_rank: int, now: float) -> None:
        """Note that it was given a cycle's order."""
        self._since.setdefault(local_rank, now)
        self._ranks[local_rank] = _Rank.ORDERED

    def gone(self, local_rank: int) -> None:
        """Note that it is a worker like any other now, or was ended on purpose."""
        self._since.pop(local_rank, None)
        self._ranks[local_rank] = _Rank.MISSING

    def died(self, local_rank: int, now: float) -> float:
        """Note that it has died, or could not be started. Return the pause until the next start."""
        self.gone(local_rank)
        pause = min(FIRST_PAUSE * 2.0**self._deaths, LONGEST_PAUSE)
        self._deaths = min(self._deaths + 1, 32)
        self._again_at = now + pause
        return pause

    def refuse(self) -> None:
        """Note that the preload cannot work."""
        self.refused = True

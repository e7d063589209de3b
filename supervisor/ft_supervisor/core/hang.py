"""Which workers hang: those whose heartbeat stays away. Pure; times are seconds of the caller's monotonic clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ft_supervisor.core.settings import Hang


@dataclass
class _Beating:
    """One worker: it is to be heard of within `patience` after `since`."""

    since: float
    patience: float
    after: float
    heard: bool = False
    triggered: bool = False


class Watch:
    """Over the workers of one cycle. Each is named once, and not watched any more after that, or when it is stopping.

    A rank that is not watched may be named in any call; nothing happens.
    """

    def __init__(self, hang: Hang, local_ranks: Iterable[int], now: float) -> None:
        self._ranks = {rank: _Beating(now, hang.first, hang.after) for rank in local_ranks}

    def beat(self, local_rank: int, now: float, after: float | None = None) -> None:
        """It has been heard of. `after`: its patience from now on, if it asks for one (0: for none)."""
        if (rank := self._ranks.get(local_rank)) is None:
            return
        if after is not None:
            rank.after = after or float("inf")
        rank.since, rank.patience, rank.heard = now, rank.after, True

    def trigger(self, local_rank: int) -> None:
        """It says itself that it hangs."""
        if (rank := self._ranks.get(local_rank)) is not None:
            rank.triggered = True

    def stopping(self, local_rank: int) -> None:
        """No more is to be expected of it: it has said so, or it has exited."""
        self._ranks.pop(local_rank, None)

    def forgive(self, seconds: float, now: float) -> None:
        """We stood still for so long ourselves, and may have missed beats: that time counts against nobody."""
        for rank in self._ranks.values():
            rank.since = min(rank.since + seconds, now)

    def hung(self, now: float) -> tuple[tuple[int, str, float], ...]:
        """(local_rank, reason in one line, seconds of silence) of those that hang and have not been named yet."""
        found = tuple(
            (local_rank, reason, 0.0 if rank.triggered else rank.patience)
            for local_rank, rank in sorted(self._ranks.items())
            if (reason := _reason(rank, now)) is not None
        )
        for local_rank, _, _ in found:
            del self._ranks[local_rank]
        return found


def _reason(rank: _Beating, now: float) -> str | None:
    if rank.triggered:
        return "it says that it hangs (WATCHDOG=trigger)"
    if now - rank.since < rank.patience:
        return None
    return f"no heartbeat for {rank.patience:g} s" + ("" if rank.heard else " after its start")

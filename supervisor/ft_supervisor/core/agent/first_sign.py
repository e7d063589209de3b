"""Finds the first sign of training of a node's workers in a cycle: see core.protocol.signs. All times in seconds."""

from __future__ import annotations

from ft_supervisor.core.protocol.events import Beat
from ft_supervisor.core.protocol.signs import NodeSign, Sign

_ALIVE = ("beat", "ready")
"""Kinds of Beat that a worker sends while it trains."""


class FirstSign:
    """The signs of one node. A heartbeat of each of its `per_node` workers is better than a line of rank 0."""

    def __init__(self, per_node: int) -> None:
        self._per_node = per_node
        self._started = 0.0
        self._awaited: set[int] = set()
        self._best: tuple[Sign, float] | None = None

    def start(self, now: float) -> None:
        """Wait for the signs of a new cycle, whose workers are started now."""
        self._started, self._awaited, self._best = now, set(range(self._per_node)), None

    def beat(self, beat: Beat, now: float) -> bool:
        """Note a worker's notification. Return whether the node has a better sign now."""
        if beat.kind not in _ALIVE or beat.local_rank not in self._awaited:
            return False
        self._awaited.discard(beat.local_rank)
        if not self._awaited:
            self._best = Sign.BEAT, now
        return not self._awaited

    def line(self, now: float) -> bool:
        """Note that rank 0 has printed something. Return whether that is the node's first sign."""
        if self._best is not None:
            return False
        self._best = Sign.LINE, now
        return True

    def at(self, now: float) -> NodeSign | None:
        """Return the best sign, with its age; None without one."""
        if self._best is None:
            return None
        sign, at = self._best
        return NodeSign(sign, max(0.0, now - self._started), max(0.0, now - at))

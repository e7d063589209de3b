"""Knows whether a whole cycle does nothing any more, by its nodes' reports. All times in seconds."""

from __future__ import annotations

from collections.abc import Collection

from ft_supervisor.core.protocol.activity import gap


class Standstill:
    """The nodes of one cycle. A node repeats its report at each look at its workers; if it misses too many its last one
    counts no more (protocol.activity)."""

    def __init__(self, after: float) -> None:
        self._bound = gap(after)
        self._still: dict[int, tuple[float, float]] = {}
        """By infra_rank since when the node's workers have done nothing, and when it last said so."""

    def hear(self, node: int, seconds: float, now: float) -> None:
        """Note a node's report: its workers have done nothing for so many seconds; 0: one of them works."""
        if seconds:
            self._still[node] = now - seconds, now
        else:
            self._still.pop(node, None)

    def lasts(self, nodes: Collection[int], now: float) -> float | None:
        """Return for how many seconds the workers of all these nodes have done nothing; None where one of the nodes has
        not reported that."""
        known = [self._still[node] for node in nodes if node in self._still]
        if not nodes or len(known) < len(nodes) or any(now - told > self._bound for _, told in known):
            return None
        return now - max(since for since, _ in known)

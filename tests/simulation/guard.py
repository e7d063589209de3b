"""The guard beside the workers of one agent: it stands still only with the whole node, and dies with its agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.agent import SimAgent

LOOK = 0.5
"""Seconds between two looks while no lease holds."""
WAKING = 0.05
"""Seconds between two looks while the node stands still: how late it goes on, at most, after the workers."""


class SimGuard:
    """Kills its node's workers once the deadline that it last received is over."""

    def __init__(self, agent: SimAgent) -> None:
        self._agent = agent
        self._end: float | None = None

    def set(self, end: float | None) -> None:
        """Set the deadline, by the node's clock; None: there is none."""
        if end == self._end:
            return
        self._end = end
        if end is not None:
            self._agent.world.after(max(0.0, end - self._agent.node.local()), self._look, end)

    def _look(self, end: float) -> None:
        agent, node = self._agent, self._agent.node
        if not agent.alive or end != self._end:
            return
        if not node.frozen and node.local() >= end and node.workers is not None:
            node.workers.strike()
        agent.world.after(WAKING if node.frozen else LOOK, self._look, end)

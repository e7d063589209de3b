"""Decides when an agent tells the training step that its workers have named. All times in seconds.

Only the node of rank 0 tells it: the step is the same for all, and one message in a while is enough for people.
"""

from __future__ import annotations

from ft_supervisor.core.protocol.events import Beat

EVERY = 5.0
"""Seconds between two messages, at least."""


class StepNews:
    """The newest step of one node's workers in the cycle that runs."""

    def __init__(self) -> None:
        self._tells = False
        self._step: int | None = None
        self._told: int | None = None
        self._told_at = float("-inf")

    def begin(self, group_rank: int) -> None:
        """Forget the former cycle. `group_rank`: this node's in the new one."""
        self._tells, self._step, self._told, self._told_at = group_rank == 0, None, None, float("-inf")

    def beat(self, beat: Beat) -> None:
        """Note a worker's notification."""
        if beat.step is not None:
            self._step = beat.step

    def due(self, now: float) -> int | None:
        """Return the step that is to be told now, each once; None for none."""
        if not self._tells or self._step in (None, self._told) or now < self._told_at + EVERY:
            return None
        self._told, self._told_at = self._step, now
        return self._step

"""Decides when a spare runs the training script up to its restartable function, so that it is parked there."""

from __future__ import annotations

from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.protocol.settings import RestartMode
from ft_supervisor.process.log import log

_SETTLED = 5.0
"""Seconds for which a node trains nothing while others do before it counts as a spare: between two cycles all do so."""


class SpareStart:
    """The decision for one agent. All times in seconds of process.clock."""

    def __init__(self, job: Job) -> None:
        self._wanted = job.settings.restart is RestartMode.IN_PROCESS
        self._since: float | None = None

    def due(self, spare: bool, now: float) -> bool:
        """Return whether the script is to be run now, unless it runs. `spare`: the node trains nothing, others do."""
        if not spare:
            self._since = None
        elif self._since is None:
            self._since = now
        return self._wanted and self._since is not None and now >= self._since + _SETTLED

    def failed(self, how: str) -> None:
        """Note that the script has ended before it waited in a restartable function: it is not tried again."""
        if self._wanted:
            log("spare_start_failed", "warning", how=how)
        self._wanted = False

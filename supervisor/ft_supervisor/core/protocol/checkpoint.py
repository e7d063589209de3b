"""What the coordinator sees of the training's checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.protocol.bounds import Count, Moment


@dataclass(frozen=True)
class CheckpointSeen:
    """An event: the job's step file was written at `written` (seconds since the epoch, by the file system's clock). It
    changes nothing; the journal keeps it, so that reports know what was done twice and what a checkpoint costs."""

    step: Count
    written: Moment

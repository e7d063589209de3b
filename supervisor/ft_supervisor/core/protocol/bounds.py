"""Bounds of numbers and texts that come from outside. A field's annotation names its bounds; the codec checks them.

The bounds are far beyond what a job needs and far below what breaks arithmetic, clocks and JSON readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

MOST = 2**53
"""The greatest integer: JSON readers that have only floats read all integers up to here exactly."""
YEAR = 366 * 86400.0
"""Seconds."""
MOST_NODES = 100_000


@dataclass(frozen=True)
class Within:
    """From `low` to `high`, both included. Bounds a number by its value, a text or a list by its length."""

    low: float
    high: float


Count = Annotated[int, Within(0, MOST)]
Ordinal = Annotated[int, Within(1, MOST)]
"""A number that counts from 1."""
Rank = Annotated[int, Within(0, MOST_NODES - 1)]
LocalRank = Annotated[int, Within(-1, MOST_NODES - 1)]
"""A worker's local_rank, or model.AGENT_RANK."""
Term = Annotated[int, Within(0, MOST)]
AnyTerm = Annotated[int, Within(-1, MOST)]
"""A term, or model.NO_PROMISE."""
Port = Annotated[int, Within(1, 65535)]
ExitCode = Annotated[int, Within(0, 255)]
Duration = Annotated[float, Within(0.0, YEAR)]
"""Seconds."""
Moment = Annotated[float, Within(0.0, 1e11)]
"""Seconds since the epoch, before the year 5138: `datetime` can show it."""
Name = Annotated[str, Within(0, 1024)]
"""The name of a host, signal or exception."""
Text = Annotated[str, Within(0, 4096)]
"""A reason, a message, a path."""

"""What a number or text that comes from outside may be. A field says so in its annotation, and the codec looks at it.

The bounds are far beyond what a job needs and far below what breaks arithmetic, clocks and JSON readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

MOST = 2**53
"""The greatest integer: JSON readers that know only floats take all up to here exactly."""
YEAR = 366 * 86400.0
"""Seconds."""
MOST_NODES = 100_000


@dataclass(frozen=True)
class Within:
    """From `low` to `high`, both included: a number itself, of a text or list its length."""

    low: float
    high: float


Count = Annotated[int, Within(0, MOST)]
Ordinal = Annotated[int, Within(1, MOST)]
"""What is counted from 1."""
Rank = Annotated[int, Within(0, MOST_NODES - 1)]
LocalRank = Annotated[int, Within(-1, MOST_NODES - 1)]
"""Or model.AGENT_RANK."""
Term = Annotated[int, Within(0, MOST)]
AnyTerm = Annotated[int, Within(-1, MOST)]
"""Or model.NO_PROMISE."""
Port = Annotated[int, Within(1, 65535)]
ExitCode = Annotated[int, Within(0, 255)]
Duration = Annotated[float, Within(0.0, YEAR)]
"""Seconds."""
Moment = Annotated[float, Within(0.0, 1e11)]
"""Seconds since the epoch, before the year 5138: `datetime` can show it."""
Name = Annotated[str, Within(0, 1024)]
"""Of a host, signal or exception."""
Text = Annotated[str, Within(0, 4096)]
"""A reason, a message, a path."""

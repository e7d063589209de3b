"""A worker's signs of work, as its agent can see them from outside without a line of code in the training."""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.protocol.evidence import TAKING

LOOKS = 12
"""Looks at the workers within the time after which they count as still."""
_MOST = 60.0
_LEAST = 0.5
"""Bounds of the seconds between two looks."""
_MISSED = 3
"""Looks in a row."""


def interval(after: float) -> float:
    """Return the seconds between two looks, where workers count as still after so many seconds."""
    return min(_MOST, max(_LEAST, after / LOOKS))


def gap(after: float) -> float:
    """Return the seconds between two looks above which nothing is known of the time between them. Stacks may take as
    long as evidence does."""
    return max(_MISSED * interval(after), 2 * TAKING)


@dataclass(frozen=True)
class Activity:
    """Totals of one worker since its start. A total that falls has begun anew, which is a sign of work.

    `output`: bytes on its pipes. `written`: bytes that it has written anywhere, and `read`: bytes that it has read
    (/proc/PID/io: wchar and write_bytes, rchar and read_bytes). `cpu`: its own CPU time. `below_written`, `below_cpu`:
    those of all processes below it, such as a compiler, a data loader or a process that saves. `sequence`: the
    collectives that it has entered; 0 where torch does not tell, and where that was not looked at. Times in seconds.
    """

    local_rank: int
    output: int = 0
    written: int = 0
    read: int = 0
    cpu: float = 0.0
    below_written: int = 0
    below_cpu: float = 0.0
    sequence: int = 0

"""The first signs of training that nodes give in a cycle, and the time that they stand for. Pure.

An agent sends a sign once, with its age, and repeats it in each Register: a lost message or a takeover loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ft_supervisor.core.protocol.bounds import Duration


class Sign(StrEnum):
    """What shows that a node's workers train."""

    LINE = "line"
    """Rank 0, which is on this node, has printed its first line. It counts in a run without any heartbeat."""
    BEAT = "beat"
    """Each worker of the node has sent its first heartbeat."""


@dataclass(frozen=True)
class NodeSign:
    """A node's best sign in the cycle that it runs. `started`, `signed`: seconds since it started its workers, and
    since the sign, when this was sent."""

    sign: Sign
    started: Duration
    signed: Duration


@dataclass
class CycleSigns:
    """The signs of one cycle's nodes, as they become known. `started`: when the last of these nodes had started its
    workers; `line`, `beat`: when the last sign of each kind was given. All are times of one clock, None without one."""

    started: float | None = None
    line: float | None = None
    beat: float | None = None
    _seen: set[tuple[int, Sign]] = field(default_factory=set)

    def add(self, node: int, sign: Sign, started: float, signed: float) -> None:
        """Note the sign of a node. A repeated one changes nothing."""
        if (node, sign) in self._seen:
            return
        self._seen.add((node, sign))
        self.started = _later(self.started, started)
        if sign is Sign.BEAT:
            self.beat = _later(self.beat, signed)
        else:
            self.line = _later(self.line, signed)

    def forget_nodes(self) -> None:
        """No sign of this cycle comes any more. Its times stay."""
        self._seen.clear()


class HasSigns(Protocol):
    """A cycle of a run."""

    signs: CycleSigns


def beats(cycles: Iterable[HasSigns]) -> bool:
    """Return whether any cycle of the run has had a heartbeat: then lines are no signs of training."""
    return any(cycle.signs.beat is not None for cycle in cycles)


def _later(one: float | None, other: float) -> float:
    return other if one is None else max(one, other)

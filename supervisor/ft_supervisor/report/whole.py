"""The parts of a run's time as they are painted; together they are the whole of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ft_supervisor.core.protocol.cost import Part
from ft_supervisor.core.words import duration
from ft_supervisor.history.model import History

_SHOWN: tuple[tuple[str, str, tuple[Part, ...]], ...] = (
    ("training", "training", (Part.TRAINING,)),
    ("first", "first start", (Part.FIRST_START,)),
    ("detection", "until noticed", (Part.DETECTION,)),
    ("stopping", "stopping", (Part.STOP,)),
    ("waiting", "deciding, waiting for nodes", (Part.DECISION, Part.WAITING, Part.RENDEZVOUS)),
    ("starting", "workers starting again", (Part.STARTING,)),
    ("end", "ending", (Part.END,)),
    ("unknown", "not known", (Part.UNKNOWN,)),
)


@dataclass(frozen=True)
class Share:
    """A painted part. `kind`: its colour in the page's CSS; `share`: of the whole, 0 to 1."""

    kind: str
    title: str
    seconds: float
    share: float


def whole(history: History) -> tuple[Share, ...]:
    """Return the parts in the order in which they are painted, without those that took no time; () if the run's time is
    not known."""
    cost = history.cost
    if cost is None or cost.whole <= 0:
        return ()
    sums = [(kind, title, sum(map(cost.part, parts))) for kind, title, parts in _SHOWN]
    return tuple(Share(kind, title, each, each / cost.whole) for kind, title, each in sums if each > 0)


def percent(share: float) -> str:
    """Return a share of 0 to 1 as `56 %`."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def spoken(parts: Sequence[Share]) -> str:
    """Return the parts with their times, in one line."""
    return ", ".join(f"{part.title} {duration(part.seconds)} ({percent(part.share)})" for part in parts)

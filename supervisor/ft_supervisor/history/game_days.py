"""Reads the faults that `ft-supervisor fault` injected into a run, from its faults.jsonl (fault.record). Pure.

The file is not trusted: a line that is torn or makes no sense is counted and skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ft_supervisor.history.fact import LATEST
from ft_supervisor.history.model import CycleStory, Fault

NAME = "faults.jsonl"
_AFTER = 1.0
"""Seconds. A fault is recorded after it was injected, and the cycle that it hits may be over by then."""


def faults(lines: Iterable[bytes]) -> tuple[list[Fault], int]:
    """Return the faults in the order of the lines, and the number of lines that are no fault."""
    found: list[Fault] = []
    bad = 0
    for line in lines:
        try:
            found.append(_fault(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            bad += 1
    return found, bad


def _fault(value: dict[str, Any]) -> Fault:
    return Fault(
        at=_number(datetime.fromisoformat(value["time"]).timestamp()),
        act=_text(value["act"]),
        target=_text(value["target"]),
        node=_text(value["node"]),
        rank=_if_any(_whole, value.get("rank")),
        seconds=_if_any(_number, value.get("seconds")),
        seed=_if_any(_whole, value.get("seed")),
        note=_text(value.get("note", "")),
    )


def _if_any(kind: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else kind(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) >= 2**64:
        raise TypeError(f"{value!r:.60} is no whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < LATEST:
        raise ValueError(f"{value!r:.60} is no time")
    return float(value)


def placed(
    found: Sequence[Fault], names: Sequence[str], ahead: dict[int, float], stories: Sequence[CycleStory]
) -> tuple[Fault, ...]:
    """Return the faults in order of time, with their cycles. `ahead`: the offsets of nodes' clocks (clocks.offsets)."""
    off = {names[rank]: seconds for rank, seconds in ahead.items() if 0 <= rank < len(names)}
    right = sorted((replace(each, at=each.at - off.get(each.node, 0.0)) for each in found), key=lambda each: each.at)
    return tuple(replace(each, cycle=_cycle(each.at, stories)) for each in right)


def _cycle(at: float, stories: Sequence[CycleStory]) -> str:
    begun = [story for story in stories if story.start is not None and story.start <= at]
    if not begun or (begun[-1].end is not None and at > begun[-1].end + _AFTER):
        return ""
    return begun[-1].number

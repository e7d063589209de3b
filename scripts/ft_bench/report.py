"""Makes rows of figures, and a table and JSON of rows."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

NO_TORCHRUN = "-"


@dataclass(frozen=True)
class Row:
    """One measured quantity, in `unit`, with its `samples`; none where there are only torchrun's.

    `judged` names the figure that `target` is for: median or p95. `torchrun` holds torchrun's samples of it, and
    `torchrun_note` is shown where there are none.
    """

    what: str
    unit: str
    samples: Sequence[float]
    target: float | None = None
    judged: str = "median"
    torchrun: Sequence[float] = ()
    torchrun_note: str = NO_TORCHRUN

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None without one."""
        if self.target is None or not self.samples:
            return None
        figure = p95(self.samples) if self.judged == "p95" else median(self.samples)
        return figure <= self.target

    @property
    def ratio(self) -> float | None:
        """torchrun's median by ours; None where either is missing, or ours is not above 0."""
        if not self.torchrun or not self.samples or median(self.samples) <= 0:
            return None
        return median(self.torchrun) / median(self.samples)


def median(samples: Sequence[float]) -> float:
    """Return the middle sample, or the mean of the middle two."""
    ordered = sorted(samples)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def p95(samples: Sequence[float]) -> float:
    """Return the smallest sample that at least 95 % of them do not exceed: of fewer than 20, the largest."""
    return sorted(samples)[math.ceil(0.95 * len(samples)) - 1]


def machine() -> dict[str, Any]:
    """Return the machine of the figures, and its load."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(load, 1) for load in os.getloadavg()],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows for JSON: the table's figures, and every sample."""
    return [
        {
            "what": row.what,
            "unit": row.unit,
            "median": median(row.samples) if row.samples else None,
            "p95": p95(row.samples) if row.samples else None,
            "target": row.target,
            "judged": row.judged,
            "met": row.met,
            "torchrun_median": median(row.torchrun) if row.torchrun else None,
            "torchrun_note": None if row.torchrun else row.torchrun_note,
            "ratio": row.ratio,
            "samples": list(row.samples),
            "torchrun": list(row.torchrun),
        }
        for row in rows
    ]


def show(rows: Sequence[Row], about: dict[str, Any], console: Console) -> None:
    """Print the table."""
    load = " ".join(map(str, about["load"]))
    title = f"{about['cores']} cores, load before {load}, torch {about['torch']}, Python {about['python']}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what", overflow="fold")
    for name in ("n", "median", "p95", "target", "torchrun", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        ratio = f"{row.ratio:.1f}x" if row.ratio is not None else ""
        torchrun = text(median(row.torchrun), row.unit) if row.torchrun else row.torchrun_note
        figures = [text(figure(row.samples), row.unit) if row.samples else "-" for figure in (median, p95)]
        table.add_row(row.what, str(len(row.samples or row.torchrun)), *figures, _target(row), torchrun, ratio)
    console.print(table)


def text(value: float, unit: str) -> str:
    """Return a figure with at least three significant digits."""
    digits = 0 if value == 0 or abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f} {unit}".rstrip()


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    sign, colour = ("≤", "green") if row.met else (">", "red")
    which = "p95 " if row.judged == "p95" else ""
    return f"[{colour}]{which}{sign} {row.target:g} {row.unit}".rstrip() + f"[/{colour}]"

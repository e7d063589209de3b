"""What a job's end tells in one line, for Slurm's accounting: how it ended, and what it had to live through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ft_supervisor.core.protocol.bounds import Count, Name
from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.core.words import count, names

MOST_NAMES = 8


@dataclass(frozen=True)
class Summary:
    """What the coordinator that closes the job knows of it.

    `cycles`: how many there were. `replaced`: nodes whose place another one took; `dropped`: nodes that were left out
    without one; `names`: the first MOST_NAMES of both. `lost`: seconds without training, each time from the last
    sign of the cycle that could not go on until the next one was told to run. `takeovers`: how often this coordinator
    took over; after one, the last four are what it has seen itself, and the truth is no less.
    """

    cycles: Count = 0
    replaced: Count = 0
    dropped: Count = 0
    names: tuple[Name, ...] = ()
    lost: float = 0.0
    takeovers: Count = 0


class Tally:
    """Counts while the cycles go on. `nodes` are their names by infra_rank; all times in seconds."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self._replaced: dict[int, None] = {}
        self._dropped: dict[int, None] = {}
        self._lost = 0.0
        self._broken: float | None = None

    def broken(self, since: float) -> None:
        """The running cycle cannot go on, and gave its last sign at `since`; of several the earliest counts."""
        self._broken = since if self._broken is None else min(since, self._broken)

    def started(self, former: Sequence[int], group: Sequence[int], now: float) -> None:
        """A new cycle of these nodes begins after one of those."""
        stay = set(group)
        gone = [node for node in former if node not in stay]
        new = len(group) - (len(former) - len(gone))
        self._replaced |= dict.fromkeys(node for node in gone[:new] if node not in self._dropped)
        self._dropped |= dict.fromkeys(node for node in gone[new:] if node not in self._replaced)
        if self._broken is not None:
            self._lost += max(0.0, now - self._broken)
            self._broken = None

    def summary(self, cycles: int, takeovers: int) -> Summary:
        """What has been counted; the stop that led to the job's end is no lost time."""
        names = tuple(self._nodes[node] for node in (*self._replaced, *self._dropped))
        return Summary(
            cycles, len(self._replaced), len(self._dropped), names[:MOST_NAMES], round(self._lost, 1), takeovers
        )


def head(verdict: Verdict, run_id: str) -> str:
    """How `line` begins: the outcome, and which of the job's runs it was, unless it was the first."""
    _, step, restart = (*run_id.split("."), "0", "0")[:3]
    which = [f"{what} {number}" for what, number in (("step", step), ("restart", restart)) if number != "0"]
    return f"{verdict.outcome.value} ({', '.join(which)})" if which else verdict.outcome.value


def line(summary: Summary, verdict: Verdict, run_id: str) -> str:
    """`success, 3 cycles, 1 node replaced (n3), 42 s lost`."""
    least = "at least " if summary.takeovers else ""
    parts = [head(verdict, run_id)]
    if summary.cycles:
        parts.append(count(summary.cycles, "cycle"))
    if summary.takeovers:
        parts.append("coordinator replaced")
    moved = [f"{count(number, 'node')} {what}"
             for number, what in ((summary.replaced, "replaced"), (summary.dropped, "left out")) if number]  # fmt: skip
    if moved:
        shown = names(summary.names, summary.replaced + summary.dropped, ",")
        parts.append(f"{least}{' and '.join(moved)} ({shown})")
    if round(summary.lost):
        parts.append(f"{least}{round(summary.lost)} s lost")
    return ", ".join(parts)

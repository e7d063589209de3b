"""One line about a job's end for Slurm's accounting: how it ended, and what was lost and replaced before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ft_supervisor.core.protocol.bounds import Count, Name
from ft_supervisor.core.protocol.cost import Cost
from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.core.words import count, names, one_line

MOST_NAMES = 8
MOST_REASON = 120
"""Characters of a verdict's reason in the line."""


@dataclass(frozen=True)
class Summary:
    """The counts of the coordinator that closes the job.

    `cycles`: how many there were. `replaced`: nodes whose place another one took; `dropped`: nodes that were left out
    without one; `names`: the first MOST_NAMES of both. `lost`: seconds that failures cost,
    by core.protocol.cost; at least these unless `exact`. `takeovers`: how often this coordinator took over; after one
    the numbers of nodes cover only its own time, so they are lower bounds.
    """

    cycles: Count = 0
    replaced: Count = 0
    dropped: Count = 0
    names: tuple[Name, ...] = ()
    lost: float = 0.0
    takeovers: Count = 0
    exact: bool = True


class Tally:
    """Counts while the cycles go on. `nodes` are the nodes' names by infra_rank."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self._replaced: dict[int, None] = {}
        self._dropped: dict[int, None] = {}

    def started(self, former: Sequence[int], group: Sequence[int]) -> None:
        """Note that a cycle of the nodes `group` begins after one of the nodes `former`."""
        stay = set(group)
        gone = [node for node in former if node not in stay]
        new = len(group) - (len(former) - len(gone))
        self._replaced |= dict.fromkeys(node for node in gone[:new] if node not in self._dropped)
        self._dropped |= dict.fromkeys(node for node in gone[new:] if node not in self._replaced)

    def summary(self, cycles: int, takeovers: int, cost: Cost) -> Summary:
        """Return the counts; see Summary."""
        names = tuple(self._nodes[node] for node in (*self._replaced, *self._dropped))
        replaced, dropped = len(self._replaced), len(self._dropped)
        return Summary(cycles, replaced, dropped, names[:MOST_NAMES], round(cost.lost, 1), takeovers, exact=cost.exact)


def head(verdict: Verdict, run_id: str) -> str:
    """Return the beginning of `line`: the outcome, and which of the job's runs it was, unless it was the first."""
    _, step, restart = (*run_id.split("."), "0", "0")[:3]
    which = [f"{what} {number}" for what, number in (("step", step), ("restart", restart)) if number != "0"]
    return f"{verdict.outcome.value} ({', '.join(which)})" if which else verdict.outcome.value


def line(summary: Summary, verdict: Verdict, run_id: str) -> str:
    """Return the whole line, such as `success, 3 cycles, 1 node replaced (n3), 42 s lost`; without success the
    verdict's reason ends it."""
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
        parts.append(f"{'' if summary.exact else 'at least '}{round(summary.lost)} s lost")
    if verdict.outcome is not Outcome.SUCCESS:
        parts.append(one_line(verdict.reason, MOST_REASON))
    return ", ".join(parts)

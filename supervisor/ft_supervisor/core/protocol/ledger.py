"""The ledger: what the rules' budgets were spent on, and which nodes are excluded.

The coordinator sends it to every node, so that a successor goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ft_supervisor.core.protocol.bounds import Count, Moment, Rank
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.core.protocol.settings import Budget

MAX_TIMES = 1000
"""Times kept for one rule with a window; a budget there may allow no more."""


@dataclass(frozen=True)
class Spent:
    """How often one rule has answered. `times`: when it did, in seconds since the epoch by the coordinator's clock;
    only for a rule with a window. `nodes`: (infra_rank, how often); only for a rule that counts by node."""

    rule: Rank
    count: Count
    times: tuple[Moment, ...] = ()
    nodes: tuple[tuple[Rank, Count], ...] = ()


@dataclass(frozen=True)
class Ledger:
    """The account of all rules. `entries`: how many there have ever been; of two ledgers the one with more is newer.
    `used`: restarts charged to any rule. `step`: that of the newest checkpoint; `stalled`: how many charged restarts in
    a row have not moved it.
    `in_a_row`: charged restarts since a cycle last ran steadily. `excluded`: infra_ranks that a rule has excluded, as
    `ranks.format_ranks` writes them."""

    entries: Count = 0
    used: Count = 0
    spent: tuple[Spent, ...] = ()
    step: Count | None = None
    stalled: Count = 0
    in_a_row: Count = 0
    excluded: str = ""

    def __post_init__(self) -> None:
        parse_ranks(self.excluded)  # ValueError
        if max(self.used, self.stalled, self.in_a_row) > self.entries:
            raise ValueError("more was counted than entered")

    def of(self, rule: int) -> Spent:
        """Return what this rule has spent."""
        return next((spent for spent in self.spent if spent.rule == rule), Spent(rule, 0))

    def count(self, rule: int, budget: Budget, at: float) -> int:
        """Return how often the rule has answered, within its window if it has one. `at`: seconds since the epoch."""
        spent = self.of(rule)
        if budget.window is None:
            return spent.count
        return sum(time > at - budget.window for time in spent.times)

    def of_node(self, rule: int, infra_rank: int) -> int:
        """Return how often the rule has answered failures of this node."""
        return dict(self.of(rule).nodes).get(infra_rank, 0)

    def charge(self, rule: int, budget: Budget, infra_rank: int | None, at: float) -> Ledger:
        """Return the ledger after one more answer of the rule, at `at`, to a failure of this node."""
        old = self.of(rule)
        times, nodes = old.times, dict(old.nodes)
        if budget.window is not None:
            times = (*(time for time in times if time > at - budget.window), at)[-MAX_TIMES:]
        if budget.same_node is not None and infra_rank is not None:
            nodes[infra_rank] = nodes.get(infra_rank, 0) + 1
        new = Spent(rule, old.count + 1, times, tuple(sorted(nodes.items())))
        others = [spent for spent in self.spent if spent.rule != rule]
        spent = tuple(sorted((*others, new), key=lambda each: each.rule))
        return replace(self, entries=self.entries + 1, used=self.used + 1, in_a_row=self.in_a_row + 1, spent=spent)

    def progressed(self, step: int | None) -> Ledger:
        """Return the ledger after a charged restart with this checkpoint's step; None: no checkpoint can be read."""
        if step is not None and (self.step is None or step > self.step):
            return replace(self, entries=self.entries + 1, step=step, stalled=0)
        return replace(self, entries=self.entries + 1, stalled=self.stalled + 1)

    def steady(self) -> Ledger:
        """Return the ledger after a cycle that ran so long that the next failure counts as a first one."""
        return self if not self.in_a_row else replace(self, entries=self.entries + 1, in_a_row=0)

    def exclude(self, infra_ranks: frozenset[int]) -> Ledger:
        """Return the ledger with these nodes excluded as well."""
        excluded = infra_ranks | set(parse_ranks(self.excluded))
        return replace(self, entries=self.entries + 1, excluded=format_ranks(sorted(excluded)))


EMPTY = Ledger()


def newer(one: Ledger, other: Ledger) -> Ledger:
    """Return the ledger with more entries; `one` if both have as many."""
    return other if other.entries > one.entries else one

"""The name of a cycle."""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.protocol.bounds import Count, Term


@dataclass(frozen=True, order=True)
class Cycle:
    """One incarnation of the training world; a restart is a new cycle. Ordered as the pair (term, n)."""

    term: Term
    n: Count

    def __str__(self) -> str:
        return f"{self.term}.{self.n}"

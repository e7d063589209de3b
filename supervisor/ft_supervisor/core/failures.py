"""A node's failures, as far as a message has room for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_supervisor.core.model import Failure
from ft_supervisor.core.policy import Trouble, find, weight
from ft_supervisor.core.settings import Rule
from ft_supervisor.core.words import one_line

TOLD, QUOTED, SHORT = 32, 8, 50
"""Failures that fit into one message; how many of them with their worker's last lines, and the others' characters."""


def fit_to_tell(failures: Sequence[Failure], rules: Sequence[Rule], name: str) -> tuple[Failure, ...]:
    """Those first that an earlier rule answers: they decide. `name` is the node's."""

    def weighs(failure: Failure) -> float:
        trouble = Trouble(str(failure), failure.cause, failure.infra_rank, failure)
        return weight(rules, find(rules, trouble, name))

    first = sorted(failures, key=weighs)[:TOLD]
    short = [replace(other, last_lines="", message=one_line(other.message, SHORT)) for other in first[QUOTED:]]
    return (*first[:QUOTED], *short)

"""Cuts a node's list of failures to what one message has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_supervisor.core.coordinator.policy import Trouble, find, weight
from ft_supervisor.core.protocol.model import Failure
from ft_supervisor.core.protocol.settings import Rule
from ft_supervisor.core.words import one_line

KEPT, QUOTED, SHORT = 32, 8, 50
"""Failures in one message; how many of them keep their worker's last lines; characters that the others' text keeps."""


def truncate_failures(failures: Sequence[Failure], rules: Sequence[Rule], name: str) -> tuple[Failure, ...]:
    """Return the failures that decide first, which are those that an earlier rule answers. `name` is the node's."""

    def weighs(failure: Failure) -> float:
        trouble = Trouble("", failure.cause, failure.infra_rank, failure)
        return weight(rules, find(rules, trouble, name))

    first = sorted(failures, key=weighs)[:KEPT]
    short = [replace(other, last_lines="", message=one_line(other.message, SHORT)) for other in first[QUOTED:]]
    return (*first[:QUOTED], *short)

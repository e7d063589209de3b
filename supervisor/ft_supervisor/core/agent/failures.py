"""Cuts a node's list of failures, and its evidence, to what one message has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_supervisor.core.coordinator.policy import Trouble, find, weight
from ft_supervisor.core.protocol.events import EvidenceTaken
from ft_supervisor.core.protocol.evidence import RANK_BYTES, Digest
from ft_supervisor.core.protocol.model import Failure
from ft_supervisor.core.protocol.settings import Rule
from ft_supervisor.core.words import one_line

KEPT, QUOTED, SHORT = 32, 8, 50
"""Failures in one message; how many of them keep their worker's last lines; characters that the others' text keeps."""

ROOM, LINES, MOST = 48 * 1024, 512, 128
"""Bytes of digests and last lines in one message; characters of one worker's last lines in it; short digests."""
ESCAPED = 6
"""Bytes that one character takes in JSON, at most."""


def truncate_failures(failures: Sequence[Failure], rules: Sequence[Rule], name: str) -> tuple[Failure, ...]:
    """Return the failures that decide first, which are those that an earlier rule answers. `name` is the node's."""

    def weighs(failure: Failure) -> float:
        trouble = Trouble("", failure.cause, failure.infra_rank, failure)
        return weight(rules, find(rules, trouble, name))

    first = sorted(failures, key=weighs)[:KEPT]
    short = [replace(other, last_lines="", message=one_line(other.message, SHORT)) for other in first[QUOTED:]]
    return (*first[:QUOTED], *short)


def truncate_evidence(taken: EvidenceTaken, silent: tuple[tuple[int, float], ...]) -> dict[str, tuple[object, ...]]:
    """Return the fields of messages.Evidence, so that they fit into one message: of nodes with very many workers first
    the last lines are left out, then what the digests say."""
    lines = tuple((rank, text[-LINES:]) for rank, text in taken.last_lines if text)
    digests = taken.digests
    if len(digests) * (RANK_BYTES + ESCAPED * LINES) > ROOM:
        lines = ()
    if len(digests) * RANK_BYTES > ROOM:
        short = [Digest(one.local_rank, one.stack, one.frame[:SHORT], one.source) for one in digests[:MOST]]
        digests, silent = tuple(short), ()
    return {"digests": digests, "rules": taken.rules, "last_lines": lines, "silent": silent}

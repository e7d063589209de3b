"""What the workers of a node do, as their agent can see it from outside, when one of the cycle hangs.

The coordinator asks all nodes of a cycle, compares the answers (core/coordinator/culprits.py), and only then stops the
cycle. All times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ft_supervisor.core.protocol.bounds import Count, LocalRank, Name, Text, Within

TAKING = 3.5
"""For an agent to take the evidence of all its workers, in parallel."""
ANSWERS = 4.25
"""From the first notice until the coordinator goes on with the answers that it has. It looks at each heartbeat, so with
the usual ones a rank is named within five."""
RANK_BYTES = 2048
"""Of the JSON of one worker's digest, at most."""


class EvidenceSource(StrEnum):
    """The best source that has answered about a worker."""

    WORKER_SERVER = "worker_server"
    FLIGHT_RECORDER = "flight_recorder"
    PY_SPY = "py_spy"
    FAULTHANDLER = "faulthandler"
    PROC = "proc"
    """The kernel only."""
    NONE = "none"


@dataclass(frozen=True)
class Collective:
    """The last collective that a rank has entered (enqueued) in one process group, by torch's flight recorder. Sends
    and receives between two ranks do not count.

    `group`: the same text on all ranks of the group, and another for each other group. `sequence`: 0 if the rank
    belongs to the group and has entered none.
    """

    group: Name
    sequence: Count
    operation: Name = ""
    shape: Name = ""


Collectives = Annotated[tuple[Collective, ...], Within(0, 256)]


@dataclass(frozen=True)
class Digest:
    """One worker whose process lives. Its JSON has RANK_BYTES at most.

    `stack`: the hash of the main thread's Python stack, without what differs from process to process; "" if unknown.
    `frame`: the innermost line of it outside of torch and the standard library, as "dataloader.py:1284 in __next__";
    "" if unknown. `collectives`: the most recent first. `said`: what the worker last said of itself (STATUS=).
    """

    local_rank: LocalRank
    stack: Name = ""
    frame: Text = ""
    source: EvidenceSource = EvidenceSource.NONE
    collectives: Collectives = ()
    said: Text = ""


class Ground(StrEnum):
    """What makes the culprits of a hang stand out. The first that applies counts."""

    ALONE = "alone"
    """No other worker of the cycle runs."""
    BEHIND = "behind"
    """They have not entered a collective in which others wait."""
    MISMATCH = "mismatch"
    """They have entered another collective than most, or with another shape."""
    STACK = "stack"
    """They are somewhere else in the program than most."""
    NO_ANSWER = "no_answer"
    """There is no evidence of them, but of most others."""
    SILENT = "silent"
    """All others have sent heartbeats since."""
    NONE = "none"
    """None stands out."""


@dataclass(frozen=True)
class Cluster:
    """Ranks that look alike, as `ranks.format_ranks` writes them. `collective`: the one that each has entered last."""

    ranks: str
    frame: str
    source: EvidenceSource | None
    """None: there was no answer."""
    collective: Collective | None = None


@dataclass(frozen=True)
class Explanation:
    """Why a cycle hangs. `culprits`: ranks, as `ranks.format_ranks` writes them; "" with Ground.NONE. `collective`:
    `waiting` others wait in it. `mine`: with Ground.MISMATCH the one that the first culprit has entered instead.
    `clusters`: the culprits' first, then the largest.
    """

    ground: Ground
    culprits: str = ""
    collective: Collective | None = None
    waiting: int = 0
    mine: Collective | None = None
    clusters: tuple[Cluster, ...] = ()

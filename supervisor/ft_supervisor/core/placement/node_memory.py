"""Weighs what former jobs have recorded about nodes, and lists the nodes to avoid. Pure; times are seconds.

A job's evidence names nodes that failed first, for what is the node's fault. It loses half of its weight in HALF_LIFE.
A node is listed if at least LEAST_JOBS different jobs name it, and their weights add up to LEAST_WEIGHT. Of a job that
names a node more than once the newest time counts alone. In a group's folder each other owner counts as one job: an
owner may have written anything there, and two of them have to agree before a third one's jobs avoid a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

DAY = 86400.0
HALF_LIFE = 7 * DAY
FORGOTTEN = 5 * HALF_LIFE
"""Evidence of this age does not count any more."""
LEAST_JOBS = 2
LEAST_WEIGHT = 0.5
MOST = 8
"""Nodes that a job avoids, at most."""
SHARE = 16
"""One node of so many is avoided, at most; one of a smaller job."""


@dataclass(frozen=True)
class Blame:
    """One entry of a job's evidence. `cause`: lost_node, health or hang; `at`: seconds since the epoch; `owner`: the
    user id of the file's owner."""

    node: str
    cause: str
    at: float
    job_id: int
    owner: int


@dataclass(frozen=True)
class NodeRecord:
    """All evidence about one node. `weight`: the sum over its `jobs`; `causes`: each with its number of entries;
    `last`: the newest entry's time."""

    node: str
    weight: float
    jobs: int
    causes: tuple[tuple[str, int], ...]
    last: float

    @property
    def listed(self) -> bool:
        """Whether there is enough evidence to avoid the node."""
        return self.jobs >= LEAST_JOBS and self.weight >= LEAST_WEIGHT


def weight(age: float) -> float:
    """Return the weight of evidence of this age, from 1 down to 0. A time in the future counts as now, as clocks
    differ; one of more than a day ahead does not count, as it would count for ever."""
    return 0.0 if age >= FORGOTTEN or age < -DAY else 0.5 ** (max(0.0, age) / HALF_LIFE)


def records(blames: Iterable[Blame], now: float, me: int, forgiven: Mapping[str, float]) -> tuple[NodeRecord, ...]:
    """Return a record for each node with evidence that counts, the heaviest first. `me`: this user's id; `forgiven`:
    for a node, the time up to which its evidence does not count."""
    by_node: dict[str, list[Blame]] = {}
    for blame in blames:
        if weight(now - blame.at) > 0 and blame.at > forgiven.get(blame.node, float("-inf")):
            by_node.setdefault(blame.node, []).append(blame)
    found = [_record(node, each, now, me) for node, each in by_node.items()]
    return tuple(sorted(found, key=lambda record: (-record.weight, record.node)))


def _record(node: str, blames: Sequence[Blame], now: float, me: int) -> NodeRecord:
    newest: dict[tuple[int, int], float] = {}
    for blame in blames:
        source = blame.owner, blame.job_id if blame.owner == me else 0
        newest[source] = max(blame.at, newest.get(source, blame.at))
    causes = Counter(blame.cause for blame in blames)
    total = sum(weight(now - at) for at in newest.values())
    return NodeRecord(node, total, len(newest), tuple(sorted(causes.items())), max(newest.values()))


def most_avoided(size: int) -> int:
    """Return how many nodes a job of `size` nodes avoids, at most."""
    return min(MOST, max(1, size // SHARE))


def avoided(found: Sequence[NodeRecord], size: int) -> tuple[str, ...]:
    """Return the nodes that a job of `size` nodes avoids, the worst first. `found`: as `records` returns them."""
    return tuple(record.node for record in found if record.listed)[: most_avoided(size)]

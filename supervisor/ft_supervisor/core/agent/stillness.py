"""Finds workers that do nothing any more, without heartbeats: all of a node's, each for as long as `after` (seconds).

A worker does nothing while none of its totals grows (Activity), but for a little that its background threads and
processes need. Its own CPU time alone is no sign of work: gloo and NCCL may spin while they wait. So a worker that uses
CPU time counts as still only if its main thread had one and the same stack in SAMPLES looks in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ft_supervisor.core.protocol.activity import Activity, gap

SAMPLES = 3
"""Equal stacks that show that a worker which uses CPU time goes nowhere."""
_CPU = 0.02
"""Share of a CPU that a worker's background threads use, such as a logger's or a watchdog's."""
_BELOW_CPU = 0.1
"""Share of a CPU that helpers below a worker use, such as a monitor of the machine. A compiler uses one or more."""
_BYTES = 64 << 10
"""Bytes between two looks that such helpers write, and that background threads read."""


@dataclass
class _Worker:
    """`since`: when it last showed a sign of work. `idle_since`: when it last used CPU time, too."""

    since: float
    idle_since: float
    last: Activity
    at: float
    stacks: list[str] = field(default_factory=list)


class Stillness:
    """The workers of one cycle. A worker that has not been looked at, and one that has exited, is not still."""

    def __init__(self, after: float, per_node: int) -> None:
        self._after = after
        self._per_node = per_node
        self._workers: dict[int, _Worker] = {}

    def look(self, seen: Iterable[Activity], now: float) -> None:
        """Note what the workers have done since the last look. Time in which the agent itself stood still counts as
        work, as nothing is known about it."""
        before, self._workers = self._workers, {}
        for activity in seen:
            worker = before.get(activity.local_rank)
            if worker is None or now - worker.at > gap(self._after) or _works(worker.last, activity, now - worker.at):
                worker = _Worker(now, now, activity, now)
            elif activity.cpu - worker.last.cpu > _CPU * (now - worker.at):
                worker.idle_since = now
            entered = activity.sequence or worker.last.sequence
            worker.last, worker.at = replace(activity, sequence=entered), now
            self._workers[activity.local_rank] = worker

    def beat(self, local_rank: int, now: float) -> None:
        """Note a heartbeat, which is a sign of work, too."""
        if (worker := self._workers.get(local_rank)) is not None:
            self._workers[local_rank] = _Worker(now, now, worker.last, worker.at)

    def wants_stacks(self, now: float) -> bool:
        """Whether the stacks are to be looked at: nothing but CPU time was seen for half of `after`."""
        return self._all_present() and all(
            now - worker.since >= self._after / 2 for worker in self._workers.values()
        ) and any(now - worker.idle_since < self._after for worker in self._workers.values())  # fmt: skip

    def saw(self, stacks: Mapping[int, str]) -> None:
        """Note the hashes of the main threads' stacks, by local rank; "" where it is not known."""
        for local_rank, worker in self._workers.items():
            worker.stacks = [*worker.stacks, stacks.get(local_rank, "")][-SAMPLES:]

    def still_for(self, now: float) -> float:
        """Return for how many seconds all workers have done nothing; 0 if that is shorter than `after`, or one of them
        works, or that is not known."""
        if not self._all_present():
            return 0.0
        least = min((self._still_for(worker, now) for worker in self._workers.values()), default=0.0)
        return least if least >= self._after else 0.0

    def _still_for(self, worker: _Worker, now: float) -> float:
        if now - worker.idle_since >= self._after:
            return now - worker.since
        same = len(worker.stacks) == SAMPLES and len(set(worker.stacks)) == 1 and worker.stacks[0]
        return now - worker.since if same else 0.0

    def _all_present(self) -> bool:
        return len(self._workers) == self._per_node


def _works(last: Activity, seen: Activity, seconds: float) -> bool:
    """Return whether the totals of these looks, so many seconds apart, show work."""
    exact = ("output", "written")
    grown = {name: getattr(seen, name) - getattr(last, name) for name in ("read", "below_written")}
    return (
        any(getattr(seen, name) != getattr(last, name) for name in exact)
        or 0 < last.sequence != seen.sequence > 0
        or any(not 0 <= more < _BYTES for more in grown.values())
        or not 0 <= seen.below_cpu - last.below_cpu < max(_BELOW_CPU * seconds, 0.05)
    )

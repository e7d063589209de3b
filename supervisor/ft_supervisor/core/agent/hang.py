"""Finds workers that hang: those that have sent no heartbeat for too long. All times in seconds.

`HeartbeatWatch` watches the workers of one cycle. `HangDetector` is the agent's use of it, and makes failures of the
workers that hang.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from ft_supervisor.core.protocol.events import Beat
from ft_supervisor.core.protocol.model import Failure, Job, Node
from ft_supervisor.core.protocol.settings import AutoHang, Cause, Hang


@dataclass
class _Heartbeat:
    """One worker. It hangs if no heartbeat comes within `patience` after `since`."""

    since: float
    patience: float
    after: float
    heard: bool = False
    triggered: bool = False


class HeartbeatWatch:
    """Watches the workers of one cycle, by local rank. Each is reported at most once, and not watched afterwards.

    A rank that is not watched is ignored in every call.
    """

    def __init__(self, hang: Hang, local_ranks: Iterable[int], now: float) -> None:
        first = inf if hang.auto is AutoHang.RESTART else hang.first
        self._ranks = {rank: _Heartbeat(now, first, hang.after) for rank in local_ranks}
        self._reported: dict[int, _Heartbeat] = {}

    def beat(self, local_rank: int, now: float, after: float | None = None) -> None:
        """Note a heartbeat. `after`: the patience that the worker asks for from now on (0: it is never to be called
        hung); None if it asks for nothing."""
        if (reported := self._reported.get(local_rank)) is not None:
            reported.since = now
        if (rank := self._ranks.get(local_rank)) is None:
            return
        if after is not None:
            rank.after = after or inf
        rank.since, rank.patience, rank.heard = now, rank.after, True

    def trigger(self, local_rank: int) -> None:
        """Note that the worker has called itself hung."""
        if (rank := self._ranks.get(local_rank)) is not None:
            rank.triggered = True

    def stopping(self, local_rank: int) -> None:
        """Stop watching a worker that has exited, or has said that it is about to."""
        self._ranks.pop(local_rank, None)
        self._reported.pop(local_rank, None)

    def forgive(self, seconds: float, now: float) -> None:
        """Give every worker this much more time: the agent stood still itself, and may have missed heartbeats."""
        for rank in self._ranks.values():
            rank.since = min(rank.since + seconds, now)

    def hung(self, now: float) -> tuple[tuple[int, str, float], ...]:
        """Return (local_rank, reason in one line, seconds of silence) of each worker that hangs and has not been
        reported yet."""
        found = tuple(
            (local_rank, reason, 0.0 if rank.triggered else rank.patience)
            for local_rank, rank in sorted(self._ranks.items())
            if (reason := _reason(rank, now)) is not None
        )
        for local_rank, _, _ in found:
            self._reported[local_rank] = self._ranks.pop(local_rank)
        return found

    def silent(self, now: float) -> tuple[tuple[int, float], ...]:
        """Return (local_rank, seconds since its last heartbeat, or its start) of each worker that has not exited."""
        return tuple(sorted((rank, max(0.0, now - one.since)) for rank, one in (self._ranks | self._reported).items()))


def _reason(rank: _Heartbeat, now: float) -> str | None:
    if rank.triggered:
        return "it says that it hangs (WATCHDOG=trigger)"
    if now - rank.since < rank.patience:
        return None
    return f"no heartbeat for {rank.patience:g} s" + ("" if rank.heard else " after its start")


class HangDetector:
    """Watches the present cycle's workers of one node. `epoch` is added to a time to get seconds since the epoch."""

    def __init__(self, job: Job, node: Node, epoch: float) -> None:
        self._job = job
        self._node = node
        self._epoch = epoch
        self._watch: HeartbeatWatch | None = None
        self._hung: list[Failure] = []
        self._last_tick = 0.0
        self._first = 0

    def start(self, group_rank: int, now: float) -> None:
        """Watch the workers of a new cycle, in which this node has `group_rank`. They start now."""
        self._hung, self._last_tick = [], now
        self._first = group_rank * self._job.per_node
        if self._job.settings.hang is not None:
            self._watch = HeartbeatWatch(self._job.settings.hang, range(self._job.per_node), now)

    def beat(self, event: Beat, now: float) -> None:
        """Note what a worker has sent by the notify protocol."""
        if self._watch is None:
            return
        match event.kind:
            case "trigger":
                self._watch.trigger(event.local_rank)
            case "stopping":
                self._watch.stopping(event.local_rank)
            case _:
                self._watch.beat(event.local_rank, now, event.after)

    def tick(self, now: float) -> list[Failure]:
        """Return the workers that have just been found to hang.

        No other worker is reported until `forget`: all others wait for the first one, as a rule. Time in which the
        agent itself stood still is not counted.
        """
        late, self._last_tick = now - self._last_tick - 2 * self._job.timeouts.heartbeat, now
        if self._watch is None:
            return []
        if late > 0:
            self._watch.forgive(late, now)
        if self._hung:
            return []
        self._hung = [
            Failure(
                self._node.infra_rank,
                local_rank,
                message=reason,
                time=self._epoch + now,
                cause=Cause.HANG,
                silent=silent,
                rank=self._first + local_rank,
            )
            for local_rank, reason, silent in self._watch.hung(now)
        ]
        return self._hung

    def forget(self) -> None:
        """Look for others: those that were found are to go on."""
        self._hung = []

    def silent(self, now: float) -> tuple[tuple[int, float], ...]:
        """Return (local_rank, seconds since the last heartbeat) of each worker, if heartbeats are waited for."""
        return () if self._watch is None else self._watch.silent(now)

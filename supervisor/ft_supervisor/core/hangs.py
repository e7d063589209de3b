"""One agent's hung workers: who hangs, and what is said of them once their stacks are taken."""

from __future__ import annotations

from dataclasses import replace

from ft_supervisor.core.events import Beat, StacksTaken
from ft_supervisor.core.hang import Watch
from ft_supervisor.core.model import Failure, Job, Node
from ft_supervisor.core.settings import Cause


class Hangs:
    """Of the present cycle's workers. All times in seconds; `epoch` makes seconds since the epoch of them."""

    def __init__(self, job: Job, node: Node, epoch: float) -> None:
        self._hung: list[Failure] = []
        self._job = job
        self._node = node
        self._epoch = epoch
        self._watch: Watch | None = None
        self._last_tick = 0.0

    def start(self, now: float) -> None:
        """The workers of a new cycle start."""
        self._hung, self._last_tick = [], now
        if self._job.settings.hang is not None:
            self._watch = Watch(self._job.settings.hang, range(self._job.per_node), now)

    def beat(self, event: Beat, now: float) -> None:
        """A worker's word."""
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
        """Who hangs, each once: their stacks are to be taken. Until they are, nobody else is named: whoever fell silent
        first is to be blamed. Time in which we stood still ourselves counts against nobody."""
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
            )
            for local_rank, reason, silent in self._watch.hung(now)
        ]
        return self._hung

    def blamed(self, taken: StacksTaken) -> list[Failure]:
        """The same, once their stacks are taken, with what they have printed."""
        rules, lines = dict(taken.rules), dict(taken.last_lines)
        hung, self._hung = self._hung, []
        return [
            replace(failure, rules=rules.get(failure.local_rank, ()), last_lines=lines.get(failure.local_rank, ""))
            for failure in hung
        ]

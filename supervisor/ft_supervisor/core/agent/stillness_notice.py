"""A node's part in finding a cycle that does nothing any more: it looks at its workers and tells the coordinator how
long all of them have done nothing. The coordinator decides, as only it knows of all nodes."""

from __future__ import annotations

from collections.abc import Callable

from ft_supervisor.core.agent.follower import Follower
from ft_supervisor.core.agent.stillness import Stillness
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import AgentAction, LookAtWorkers
from ft_supervisor.core.protocol.activity import interval
from ft_supervisor.core.protocol.events import WorkersSeen
from ft_supervisor.core.protocol.model import Cycle, Job
from ft_supervisor.core.protocol.settings import AutoHang, Hang


class StillnessNotice:
    """That of one agent. `do` takes the actions, in order. All times in seconds."""

    def __init__(self, job: Job, follower: Follower, do: Callable[[AgentAction], None]) -> None:
        self._hang = job.settings.hang or Hang()
        self._per_node = job.per_node
        self._follower = follower
        self._do = do
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Another cycle begins."""
        self._stillness = Stillness(self._hang.after, self._per_node)
        self._look_at = now + interval(self._hang.after)
        self._told = 0.0

    def tick(self, cycle: Cycle, now: float) -> None:
        """Look at the workers of `cycle` when it is time."""
        if self._hang.auto is not AutoHang.OFF and now >= self._look_at:
            self._look_at = now + interval(self._hang.after)
            self._do(LookAtWorkers(cycle, self._stillness.wants_stacks(now)))

    def beat(self, local_rank: int, now: float) -> None:
        """A worker has sent a heartbeat."""
        self._stillness.beat(local_rank, now)

    def seen(self, seen: WorkersSeen, now: float) -> None:
        """Tell the coordinator if all workers do nothing, and once when one of them works again."""
        self._stillness.look(seen.activities, now)
        if seen.stacks:
            self._stillness.saw(dict(seen.stacks))
        seconds = self._stillness.still_for(now)
        if seconds or self._told:
            self._follower.send(messages.StandsStill, cycle=seen.cycle, seconds=seconds)
        self._told = seconds

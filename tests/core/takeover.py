"""A coordinator that takes over from a former one, and the memories of its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.core.machines import C0, Talk

from ft_supervisor.core.coordinator.leadership import Role
from ft_supervisor.core.protocol.model import Cycle, Memory


def ran(promise: int = 0, newest: Cycle | None = C0, group: str = "0-2", **known: object) -> Memory:
    """Return the memory of a node that followed n0's coordinator."""
    return Memory(promise, newest=newest, group=group, **known)  # type: ignore[arg-type]


class Takeover(Talk):
    """n1's coordinator, after n0's is gone. Nodes 0, 1 and 2 run C0, unless `memories` or `running` differ."""

    def __init__(
        self,
        nodes: int = 5,
        memories: dict[int, Memory] | None = None,
        running: Iterable[int] = (0, 1, 2),
        *,
        active: int = 3,
        max_restarts: int = 3,
    ) -> None:
        super().__init__(nodes, active, max_restarts, infra_rank=1, memory=Memory(0))
        self._memories = {rank: ran() if rank < active else Memory(0) for rank in range(nodes)} | (memories or {})
        self._running = set(running)

    def come(self, *ranks: int) -> list[object]:
        """Let these nodes register with a promise of n0's term."""
        answers: list[object] = []
        for rank in ranks:
            answers += self._come(rank, self._memories[rank].promise)
        return answers

    def promise(self, *ranks: int) -> list[object]:
        """Let these nodes answer Prepare."""
        assert self.machine.state.leadership.election.term is not None
        answers: list[object] = []
        for rank in ranks:
            answers += self._come(rank, self.machine.state.leadership.election.term)
        return answers

    def _come(self, rank: int, promise: int) -> list[object]:
        known = self._memories[rank]
        running = known.newest if rank in self._running else None
        memory = replace(known, promise=promise)
        return self.register(rank, running=running, memory=memory)

    def take(self, *ranks: int) -> list[object]:
        """Let these nodes register and then promise; return all actions."""
        answers = self.come(*ranks)
        assert self.machine.role is Role.PREPARING
        return answers + self.promise(*ranks)

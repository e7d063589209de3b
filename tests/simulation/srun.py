"""The srun of a simulated job: it starts the daemons, and ends when all of them have ended."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ft_supervisor.core.protocol.events import Signalled

if TYPE_CHECKING:
    from tests.simulation.launch import SimLaunch
    from tests.simulation.node import SimNode

SLURMD_TIMEOUT = (5.0, 300.0)
"""Seconds from a node's death until Slurm reports it to srun."""


class SimSrun:
    """The process of srun. Some ignore SIGTERM, and a few do not end by SIGKILL, as if their file server hung."""

    def __init__(self, launch: SimLaunch, dice: random.Random) -> None:
        self._launch = launch
        self._world = launch.world
        self._dice = dice
        self._deaf = dice.random() < 0.2
        self._stuck = dice.random() < 0.1
        self._codes: dict[int, int] = {}
        self.code: int | None = None
        """Its exit code; None while it runs."""

    def task_ended(self, node: SimNode, code: int | None, *, dead: bool) -> None:
        """Note the end of a daemon. `code`: its exit code, None if it was killed; `dead`: whether its node is."""
        late = self._dice.uniform(*SLURMD_TIMEOUT) if dead else self._dice.uniform(0.0, 0.3)
        self._world.after(late, self._hear, node.rank, 1 if dead else 137 if code is None else code, dead)

    def signal(self, name: str) -> None:
        """Handle a signal from `launch`."""
        if self.code is not None:
            return
        match name:
            case "SIGINT":
                for node in self._world.nodes:
                    if node.up:
                        self._world.after(
                            self._dice.uniform(0.0, 0.2), node.daemon.do, node.daemon.feed, Signalled("SIGINT")
                        )
            case "SIGTERM" if not self._deaf:
                self._world.after(self._dice.uniform(0.0, 0.5), self._launch.kill_tasks)
                self._world.after(self._dice.uniform(0.5, 2.0), self._end, 143)
            case "SIGKILL" if not self._stuck:
                self._world.after(0.01, self._end, 137)

    def _hear(self, rank: int, code: int, dead: bool) -> None:
        self._codes[rank] = code
        if len(self._codes) == len(self._world.nodes):
            self._end(1 if any(node.dead for node in self._world.nodes) else max(self._codes.values()))

    def _end(self, code: int) -> None:
        if self.code is None:
            self.code = code
            self._launch.srun_ended(code)

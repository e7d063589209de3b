"""The invariants of a cycle that hangs. Raises Breach.

hang: All nodes are asked, in a bounded time, and only a node is blamed that hangs or has not answered. Where no rank
stands out, or ranks of several nodes do, no node is charged or replaced.
still: A cycle stands still only if all of its workers have done nothing for the whole of `hang.after`; workers that are
only seen to compute are where they are for some looks at least. With `auto: notify` nothing follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.clockwork import Breach
from tests.simulation.settings import AFTER
from tests.simulation.workers import trace

from ft_supervisor.core.agent.stillness import SAMPLES
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.activity import gap, interval
from ft_supervisor.core.protocol.coordinator_facts import (
    CycleFailed,
    Decided,
    HangExplained,
    HangHeard,
    MajorityLost,
    SteppedDown,
    TookCharge,
)
from ft_supervisor.core.protocol.evidence import ANSWERS, Ground
from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.core.protocol.settings import Cause

if TYPE_CHECKING:
    from tests.simulation.coordinator import SimCoordinator
    from tests.simulation.workers import SimWorkers
    from tests.simulation.world import World

DELAY = 1.0
"""Seconds that a node's report is under way, at most, with the looks before and after it."""


class HangChecks:
    """Checks what coordinators announce about hangs, and knows which workers hang. It changes nothing in the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.hanging: set[int] = set()
        """The infra_ranks of nodes whose workers have ever hung."""
        self._noticed: set[tuple[Cycle, int]] = set()
        self._rounds: dict[SimCoordinator, float] = {}
        self._explained: HangExplained | None = None

    def hangs(self, workers: SimWorkers, *, noticed: bool) -> None:
        """Note workers that hang. `noticed`: their agent learns of it at once."""
        rank = workers.agent.node.rank
        self.hanging.add(rank)
        if noticed:
            self._noticed.add((workers.cycle, rank))

    def announced(self, coordinator: SimCoordinator, fact: Fact) -> None:
        """Check a fact that this coordinator announces."""
        match fact:
            case TookCharge() | SteppedDown() | MajorityLost():  # without a majority nothing is decided
                self._rounds.pop(coordinator, None)
            case HangHeard(infra_rank, cycle):
                self._rounds[coordinator] = coordinator.awake()
                if (cycle, infra_rank) not in self._noticed:
                    self._check_standstill(cycle)
            case HangExplained():
                self._explained = fact
                self._check_round(coordinator)
                self._check_blame(fact)
            case CycleFailed(cycle=failed):
                self._check_round(coordinator)
                if failed is not None and self._follows(fact.reason):
                    self._check_failed(fact, failed)
            case Decided(cause=Cause.HANG) if fact.replaced and self._blameless and self._follows(fact.reason):
                raise Breach("hang", f"{fact.replaced} are replaced, and who began the hang is not known")

    def _check_round(self, coordinator: SimCoordinator) -> None:
        """Check that a round ends in time. A coordinator that stands still cannot end it."""
        since = self._rounds.pop(coordinator, None)
        if since is None:
            return
        seconds = coordinator.awake() - since
        if seconds > ANSWERS + 2 * self._world.job.timeouts.heartbeat:
            raise Breach("hang", f"the round of {coordinator.node.name} goes on for {seconds:.1f} s")

    def _check_blame(self, fact: HangExplained) -> None:
        if fact.seconds < ANSWERS and fact.silent:
            raise Breach("hang", f"the round ends after {fact.seconds:g} s, and {fact.silent} have not answered")
        node = fact.infra_rank
        if node is None:
            return
        if node not in fact.silent and node not in self.hanging:
            raise Breach("hang", f"n{node} is blamed for the hang of {fact.cycle}")
        if fact.explanation.ground is Ground.NONE:
            raise Breach("hang", f"n{node} is blamed for the hang of {fact.cycle}, and no rank stands out")

    def _check_failed(self, fact: CycleFailed, cycle: Cycle) -> None:
        if fact.infra_rank is not None and self._blameless:
            raise Breach("hang", f"n{fact.infra_rank} is charged, and who began the hang of {cycle} is not known")
        if self._world.plan.auto == "notify" and not any(noticed == cycle for noticed, _ in self._noticed):
            raise Breach("still", f"{cycle} is stopped, and is only to be told of")

    def _follows(self, reason: str) -> bool:
        """Whether this is the reason of the last hang that was explained."""
        return self._explained is not None and reason.endswith(self._explained.reason)

    @property
    def _blameless(self) -> bool:
        """Whether the last hang that was explained is no single node's."""
        return self._explained is not None and self._explained.infra_rank is None

    def _check_standstill(self, cycle: Cycle) -> None:
        """Check that all workers of the cycle have done nothing for as long as the settings say. A node's last report
        counts for a while."""
        world = self._world
        old = gap(AFTER) + DELAY
        least = 0.99 * AFTER if trace(world.plan) != "stack" else (SAMPLES - 2) * interval(AFTER)
        for node in world.nodes:
            workers = node.workers
            if workers is None or not workers.alive or workers.cycle != cycle:
                continue
            seconds, over = workers.stood_still()
            if seconds < least or over > old:
                raise Breach("still", f"{cycle} is said to stand still, and {node.name} did so for {seconds:.1f} s")

"""A coordinator with its metrics, as `tests.core.machines.Talk` talks to it."""

from __future__ import annotations

from typing import Any

from tests.core.machines import Talk

from ft_supervisor.coordinator.metric_families import PREFIX, Buckets
from ft_supervisor.coordinator.metrics import CoordinatorMetrics
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import CoordinatorAction
from ft_supervisor.core.protocol.events import CoordinatorEvent
from ft_supervisor.core.protocol.model import JobPhase
from ft_supervisor.core.protocol.signs import NodeSign, Sign


class Watched(Talk):
    """A machine whose metrics count every event that it gets, from the first beat on."""

    metrics: CoordinatorMetrics | None = None
    trains = True
    """Whether the workers train as soon as all nodes of the cycle were heard."""

    def beat(self) -> list[object]:
        if self.metrics is None:
            self.metrics = CoordinatorMetrics(self.machine, "1.2.3", "ada")
            handle = self.machine.handle

            def watched(event: CoordinatorEvent, now: float) -> list[CoordinatorAction]:
                assert self.metrics is not None
                actions = handle(event, now)
                self.metrics.saw(event, actions, now)
                return actions

            self.machine.handle = watched  # type: ignore[method-assign]
        done = super().beat()
        state = self.machine.state
        if self.trains and state.phase is JobPhase.RUNNING and not self.metrics._waits_for:
            self.train()
        return done

    def train(self) -> None:
        """Let all nodes of the cycle give their first sign of training."""
        cycle, state = self.machine.cycle, self.machine.state
        if cycle is not None and not state.account.training:
            for rank in state.cycles.group:
                sign = NodeSign(Sign.BEAT, 0.0, 0.0)
                self.hear(messages.Training(self.machine.term or 0, rank, 1, cycle, sign))

    def values(self, name: str) -> dict[str, Any]:
        """Return the values of this metric by its label ("" without), as of now; a histogram's as (how many, their
        sum)."""
        assert self.metrics is not None
        return {
            sample.labels[0] if sample.labels else "": (
                (sample.value.counts[-1], round(sample.value.total, 6))
                if isinstance(sample.value, Buckets)
                else sample.value
            )
            for sample in self.metrics.samples(self.now)
            if sample.family.name == PREFIX + name
        }

    def value(self, name: str, label: str = "") -> Any:
        """Return one value."""
        return self.values(name)[label]

"""Hands the metrics of this coordinator's process from its main loop to the server that publishes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata

from ft_supervisor.coordinator.metric_families import Sample
from ft_supervisor.coordinator.metrics import CoordinatorMetrics
from ft_supervisor.coordinator.metrics_server import Server, host
from ft_supervisor.coordinator.metrics_text import CONTENT_TYPE, render
from ft_supervisor.coordinator.notifier import user_name
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol.actions import CoordinatorAction
from ft_supervisor.core.protocol.events import CoordinatorEvent
from ft_supervisor.process import clock
from ft_supervisor.process.log import log

EVERY = 1.0
"""Seconds between two hand-overs of the values."""
STALE = 15.0
"""Seconds after which old values are not published: the main loop stands still, and a scrape had better fail than
return wrong values."""


@dataclass(frozen=True)
class _Values:
    """The values that the main loop hands over. `at`: process.clock."""

    at: float
    samples: tuple[Sample, ...]


class Exporter:
    """Collects and publishes the metrics. For the main thread: `saw` after each step of the machine, `beat` every
    heartbeat. Neither waits or raises."""

    def __init__(self, machine: CoordinatorMachine, now: float) -> None:
        self._run_id = machine.job.run_id
        self._metrics: CoordinatorMetrics | None = CoordinatorMetrics(machine, _version(), user_name())
        self._next = now
        self._values: _Values | None = None
        self._rendered: tuple[_Values, bytes] | None = None
        wanted = machine.job.settings.metrics
        Server(host(wanted.listen, machine.node.addr), wanted.port, CONTENT_TYPE, self._text)

    def saw(self, event: CoordinatorEvent, actions: Sequence[CoordinatorAction], now: float) -> None:
        """Count an event that the machine got at `now`, and the actions it returned. See CoordinatorMetrics.saw."""
        if (metrics := self._metrics) is not None:
            self._guarded(lambda: metrics.saw(event, actions, now))

    def beat(self, now: float) -> None:
        """Hand the values over, if they are due."""
        if (metrics := self._metrics) is not None and now >= self._next:
            self._next = now + EVERY
            self._guarded(lambda: self._give(_Values(now, metrics.samples(now))))

    def _give(self, values: _Values) -> None:
        self._values = values

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # an error in metrics must not end a training
            self._metrics = None
            log("metrics_failed", "warning", error=f"no metrics any more: {type(error).__name__}: {error}")

    def _text(self) -> bytes | None:
        """Return the text; it is made once per hand-over, however often clients ask. For the server's thread."""
        values = self._values
        if values is None or clock.now() - values.at > STALE:
            return None
        if self._rendered is None or self._rendered[0] is not values:
            self._rendered = values, render(self._run_id, values.samples)
        return self._rendered[1]


def _version() -> str:
    try:
        return metadata.version("ft-supervisor")
    except metadata.PackageNotFoundError:  # run from its sources
        return "unknown"

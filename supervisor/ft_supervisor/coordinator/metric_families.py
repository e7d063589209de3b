"""The metrics that the coordinator exposes to Prometheus: names, types, labels and help texts.

The names follow https://prometheus.io/docs/practices/naming/. Counters and histograms are counted by one coordinator
process from its start on; after a takeover another process begins at zero. So a whole job's value is a sum over its
coordinators, `sum by (run_id) (increase(...))`. Each series has the label `run_id`, as a node's port serves one job
after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ft_supervisor.core.protocol.cost import Part
from ft_supervisor.core.protocol.model import JobPhase
from ft_supervisor.core.protocol.settings import Cause, RestartMode
from ft_supervisor.run_folder.snapshot import NodeRole

PREFIX = "ft_supervisor_"
RUN_ID = "run_id"

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds in seconds: from a pidfd's milliseconds to a wait for nodes."""

OTHER = "other"
CAUSES = (*(cause.value for cause in Cause), OTHER)
PHASES = (JobPhase.JOINING, JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.CLOSING)
STATES = tuple(role.value for role in NodeRole)
MOST_PROBLEMS = 20
"""Nodes with a problem that have a series of their own: a rack that is lost must not make a thousand."""
PERCENTILES = (50, 90, 99, 100)


class MetricType(StrEnum):
    """Prometheus' types. INFO is a gauge of 1 whose labels carry the information."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True)
class Family:
    """One metric. `name`: as in PromQL, a histogram's without _bucket, _sum or _count. `labels`: those besides run_id
    and a histogram's le. `values`: the possible values of its one label, if they are known beforehand."""

    name: str
    kind: MetricType
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Buckets:
    """A histogram. `counts`: number of values up to each bound in BUCKETS, then of all values; `total`: their sum."""

    counts: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    total: float = 0.0

    def add(self, seconds: float) -> Buckets:
        """Return the histogram with one more value."""
        more = [count + (seconds <= bound) for count, bound in zip(self.counts, BUCKETS, strict=False)]
        return Buckets((*more, self.counts[-1] + 1), self.total + seconds)


@dataclass(frozen=True)
class Sample:
    """One value of a family. `labels`: the values of its labels, in the family's order."""

    family: Family
    labels: tuple[str, ...]
    value: float | Buckets


def _family(name: str, kind: MetricType, help_: str, label: str = "", values: Iterable[str] = ()) -> Family:
    return Family(PREFIX + name, kind, help_, (label,) if label else (), tuple(values))


INFO = Family(
    f"{PREFIX}info",
    MetricType.INFO,
    "The coordinator's node and version, the term in which it is in charge (empty when it is not), the job's name in "
    "the configuration, and its user.",
    ("version", "node", "term", "job_name", "user"),
)
IN_CHARGE = _family("in_charge", MetricType.GAUGE, "1 for the coordinator that is in charge with a majority, else 0.")
PHASE = _family("phase", MetricType.GAUGE, "1 for what the job is at, 0 for the others.", "phase", PHASES)
NODES = _family(
    "nodes",
    MetricType.GAUGE,
    "The job's nodes by state, as in status. excluded: by a rule; unhealthy: by a health check; unregistered: a member "
    "that this coordinator has not heard yet; lost: silent for timeouts.node_lost; left: it ended by itself.",
    "state",
    STATES,
)
NODE_PROBLEM = Family(
    f"{PREFIX}node_problem",
    MetricType.GAUGE,
    f"1 for each node that is lost, excluded or unhealthy, or that has been silent for timeouts.coordinator; at most "
    f"{MOST_PROBLEMS} nodes.",
    ("node", "state"),
)
SPARES = _family(
    "spares",
    MetricType.GAUGE,
    "Standbys that can replace a node: neither drained nor needed at first.",
)
HEARTBEAT_AGE = _family(
    "heartbeat_age_seconds",
    MetricType.GAUGE,
    "How long ago nodes were last heard, by the coordinator's clock: percentiles over those that are here; 100 is the "
    "most silent one.",
    "percentile",
    map(str, PERCENTILES),
)
CYCLE = _family("cycle_number", MetricType.GAUGE, "How many cycles the job had before this one, under any coordinator.")
BUDGET = _family(
    "budget_left",
    MetricType.GAUGE,
    "How often a rule of `failures` may still answer; rule: its number in the list, from 1.",
    "rule",
)
TIME_LIMIT = _family(
    "time_limit_timestamp_seconds",
    MetricType.GAUGE,
    "When Slurm ends the job, in seconds since the epoch; absent while Slurm has not answered.",
)
RATIO = _family(
    "effective_training_time_ratio",
    MetricType.GAUGE,
    "Share of the job's time so far in which it trained, as status and report have it; of the coordinator in charge. "
    "The start of workers is no training, until their first sign of it.",
)
TIME = _family(
    "time_seconds",
    MetricType.GAUGE,
    "What the job's time so far went into, as status and report have it: the parts add up to the whole; of the "
    "coordinator in charge. A later message may move some of it to another part, so that this is no counter.",
    "part",
    (part.value for part in Part),
)
CYCLES = _family("cycles_total", MetricType.COUNTER, "Cycles begun, the first one included.")
RESTARTS = _family(
    "restarts_total",
    MetricType.COUNTER,
    "Cycles begun after another one, by what ended that; other: growth, or what a takeover left unclear.",
    "cause",
    CAUSES,
)
RUNGS = _family(
    "restart_rungs_total",
    MetricType.COUNTER,
    "Restarts that were decided where workers.restart is in_process, by whether parked workers may go on in their "
    "processes, or all processes are new.",
    "how",
    tuple(mode.value for mode in RestartMode),
)
PARKED = _family(
    "workers_parked_total",
    MetricType.COUNTER,
    "Workers that waited in their processes for the next cycle when a cycle was stopped, as nodes have reported.",
)
FAILURES = _family(
    "worker_failures_total",
    MetricType.COUNTER,
    "Failures of workers and agents that nodes have reported, those of peers included.",
    "cause",
    (Cause.EXIT.value, Cause.OOM.value, Cause.HANG.value),
)
NODES_LOST = _family("nodes_lost_total", MetricType.COUNTER, "Nodes that were silent for timeouts.node_lost.")
PROMOTIONS = _family("promotions_total", MetricType.COUNTER, "Standbys that took the rank of another node.")
TAKEOVERS = _family("takeovers_total", MetricType.COUNTER, "How often this coordinator took charge of a job that ran.")
DETECTION = _family(
    "detection_seconds",
    MetricType.HISTOGRAM,
    "Of the failure that ended a cycle: from a lost node's last heartbeat, or from when a node noticed its worker's "
    "exit (by that node's clock), until the coordinator acted on it. Not for hangs, health checks and drains.",
    "cause",
    (Cause.EXIT.value, Cause.OOM.value, Cause.NODE_LOST.value),
)
DECISION = _family(
    "decision_seconds",
    MetricType.HISTOGRAM,
    "From there until every node of the cycle had stopped its workers or was lost, and the decision was made.",
)
RESTART = _family(
    "restart_seconds",
    MetricType.HISTOGRAM,
    "From there until every node of the next cycle was heard again after the order to run it: with the rule's pause "
    "and the wait for nodes, to a heartbeat or two, without what the training itself needs to get going.",
)

FAMILIES = (
    *(INFO, IN_CHARGE, PHASE, NODES, NODE_PROBLEM, SPARES, HEARTBEAT_AGE, CYCLE, BUDGET, TIME_LIMIT, RATIO, TIME),
    *(CYCLES, RESTARTS, RUNGS, PARKED, FAILURES, NODES_LOST, PROMOTIONS, TAKEOVERS),
    *(DETECTION, DECISION, RESTART),
)


@dataclass(frozen=True)
class MetricEntry:
    """One metric for people: its name, type, labels and help text."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


def catalogue() -> list[MetricEntry]:
    """Return all metrics, in the order of the exposition."""
    return [MetricEntry(family.name, family.kind.value, (RUN_ID, *family.labels), family.help) for family in FAMILIES]

"""The account of a run's time: one sum for the live status, the metrics, Slurm's comment and the report. Pure.

A run's time, from the start of its first coordinator's node until now or the verdict, is split at moments that the
coordinator knows. Each second belongs to exactly one Part, so the parts add up to the whole:

    first_start   until the first cycle trains: the daemons' start, the wait for nodes, and the workers' first start
    training      from the first sign of training of a cycle until its first failure, or the success of its last node
    detection     from the failure until the coordinator ends the cycle. The failure is the worker's exit, by its
                  agent's clock; for a lost node the last time that it was heard; for a worker that hangs the beginning
                  of its silence
    stop          until nothing of the cycle can run any more
    decision      until it is decided what follows
    waiting       until the next cycle begins: a rule's pause, and the wait for nodes
    rendezvous    until the last node has started its workers
    starting      until the first sign of training: Python, imports, loading a checkpoint
    end           from the end of the last cycle on
    unknown       in a cycle, but nothing tells whether its workers trained

The sign of training of a node is the first heartbeat of each of its workers. In a run without any heartbeat it is the
first line that rank 0 prints. The last node's sign counts for the cycle. A first collective is no sign, as
nothing tells of it when it happens: a run without heartbeat and line has unknown time. After a takeover a coordinator's
own account is partial; the report has all coordinators' journals. All times are seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import pairwise
from math import inf

from ft_supervisor.core.protocol.bounds import Count, Duration


class Part(StrEnum):
    """What a second of the run went into; see the module."""

    FIRST_START = "first_start"
    TRAINING = "training"
    DETECTION = "detection"
    STOP = "stop"
    DECISION = "decision"
    WAITING = "waiting"
    RENDEZVOUS = "rendezvous"
    STARTING = "starting"
    END = "end"
    UNKNOWN = "unknown"


CLOCKS = 0.25
"""Seconds. Two nodes' clocks may differ by so much before a time of one contradicts a time of the other."""

LOST = (Part.DETECTION, Part.STOP, Part.DECISION, Part.WAITING, Part.RENDEZVOUS, Part.STARTING)
"""What failures, drains and growth cost."""


@dataclass(frozen=True)
class CycleTimes:
    """The moments of one cycle, None where one is not known or has not come. `first`: no cycle came before. `began`:
    None if that was before the account's start. `started`: the last node had started its workers. `training`: the first
    sign of training. `ended`: it could not go on (`failed`), all had succeeded, or the verdict was proposed.
    `happened`: the failure itself. `stopped`: nothing of it could run any more; `decided`: it was decided what follows.
    `saved`: the newest checkpoint was written; its step is `step`. Both as read after the cycle had failed."""

    first: bool = False
    began: float | None = None
    started: float | None = None
    training: float | None = None
    happened: float | None = None
    ended: float | None = None
    failed: bool = False
    stopped: float | None = None
    decided: float | None = None
    saved: float | None = None
    step: int | None = None


@dataclass(frozen=True)
class Cost:
    """Seconds by part; their sum is `whole`. `partial`: a time before the account's start, or a journal, is missing, so
    that the run has lost at least this. `nodes`: the job's, with its spares; `workers`, `gpus`: those of all its nodes;
    `gpus` is None unless each node has told its own. `repeated`: of the training, what was done again
    after failures, by checkpoint.step_file; at least this unless `repeated_known`, None if that tells nothing.
    `steps_twice`: about so many steps were done in that time; None if their speed is not known."""

    first_start: Duration = 0.0
    training: Duration = 0.0
    detection: Duration = 0.0
    stop: Duration = 0.0
    decision: Duration = 0.0
    waiting: Duration = 0.0
    rendezvous: Duration = 0.0
    starting: Duration = 0.0
    end: Duration = 0.0
    unknown: Duration = 0.0
    partial: bool = False
    nodes: Count = 0
    workers: Count = 0
    gpus: Count | None = None
    repeated: Duration | None = None
    repeated_known: bool = True
    steps_twice: Count | None = None

    def part(self, part: Part) -> float:
        """Return the seconds of one part."""
        return float(getattr(self, part.value))

    @property
    def whole(self) -> float:
        """Seconds in all."""
        return sum(self.part(part) for part in Part)

    @property
    def lost(self) -> float:
        """Seconds that failures, drains and growth cost; at least these if not `exact`."""
        return sum(self.part(part) for part in LOST)

    @property
    def exact(self) -> bool:
        """Whether nothing is missing. If not, the lost time is "at least" `lost`, and the ratio "at most" `ratio`."""
        return not self.partial and self.unknown == 0

    @property
    def ratio(self) -> float | None:
        """The effective training time ratio, 0 to 1: training / whole, where unknown time counts as training. None
        before any time has passed."""
        return min(1.0, (self.training + self.unknown) / self.whole) if self.whole > 0 else None

    def node_hours(self, seconds: float) -> float:
        """Return the hours that all nodes of the job together spend in so many seconds."""
        return self.nodes * seconds / 3600

    def worker_hours(self, seconds: float) -> float:
        """Return the same for the workers of all nodes."""
        return self.workers * seconds / 3600

    def gpu_hours(self, seconds: float) -> float | None:
        """Return the same for the GPUs of all nodes; None if they are not known."""
        return None if self.gpus is None else self.gpus * seconds / 3600


def split(start: float, until: float, cycles: Sequence[CycleTimes], *, over: bool = False) -> dict[Part, float]:
    """Return the seconds from `start` to `until` by part; none is negative, and their sum is `until - start` (0 if that
    is negative). `cycles`: in order. `over`: the job has its verdict, so that nothing follows the last cycle."""
    parts = dict.fromkeys(Part, 0.0)
    at = start
    last = Part.FIRST_START
    for part, end in _marks(cycles, over):
        last = part
        if end is not None and end > at:
            end = min(end, until)
            parts[part] += max(0.0, end - at)
            at = max(at, end)
    if until > at:
        parts[last] += until - at
    return parts


def cost(
    start: float,
    until: float,
    cycles: Sequence[CycleTimes],
    *,
    over: bool = False,
    partial: bool = False,
    nodes: int = 0,
    per_node: int = 0,
    gpus: int | None = None,
) -> Cost:
    """Return the account; `start`, `until`, `cycles` and `over` as in `split`. Each part is rounded to milliseconds.
    `per_node`: workers on each of the job's `nodes`; the other arguments are those of Cost."""
    parts = {part.value: round(seconds, 3) for part, seconds in split(start, until, cycles, over=over).items()}
    repeated, known, steps = _repeated(cycles)
    return Cost(
        **parts,
        partial=partial,
        nodes=nodes,
        workers=nodes * per_node,
        gpus=gpus,
        repeated=repeated,
        repeated_known=known and not partial,
        steps_twice=steps,
    )


def gpus_of(told: Mapping[int, int], nodes: int) -> int | None:
    """Return how many GPUs a job has. `told`: by infra_rank; None unless each of its `nodes` is there."""
    return sum(told.values()) if nodes and len(told) == nodes else None


def happened(
    failures: Collection[float], lost: Collection[float], began: float | None, *, node_lost: bool
) -> float | None:
    """Return when a cycle's failure happened: when its first worker failed, or when a lost node was last heard, if that
    was earlier and the loss is the cause (`node_lost`) or no worker failed. None if neither is known. A failure's time
    before the cycle began comes from a wrong clock, and is ignored."""
    times = [at for at in failures if began is None or at > began - CLOCKS]
    if node_lost or not failures:
        times += lost
    return min(times, default=None)


def _repeated(cycles: Sequence[CycleTimes]) -> tuple[float | None, bool, int | None]:
    """Return the seconds of training that were done again, whether all are known, and the steps in them. What trains
    after a failure begins at the last checkpoint, so that all training since that is done again. The steps follow from
    the speed between two such checkpoints."""
    seconds, known, steps, trained = 0.0, True, 0, 0.0
    told, before = False, None
    for cycle, later in pairwise(cycles):
        if cycle.failed and cycle.training is not None and cycle.ended is not None and later.training is not None:
            if cycle.saved is None or cycle.step is None:
                known = False
            else:
                told = True
                seconds += max(0.0, _ran(cycle.ended, cycle.happened) - max(cycle.training, cycle.saved))
                if before is not None and cycle.step > before and cycle.saved > cycle.training:
                    steps, trained = steps + cycle.step - before, trained + cycle.saved - cycle.training
        before = cycle.step
    return round(seconds, 3) if told else None, known, round(steps * seconds / trained) if trained else None


def _ran(ended: float, happened: float | None) -> float:
    """Return until when a cycle trained that has ended."""
    return ended if happened is None else min(happened, ended)


def _marks(cycles: Sequence[CycleTimes], over: bool) -> Iterator[tuple[Part, float | None]]:
    """Yield parts in order, each with its end. None: that is not known, and the part has no time of its own."""
    tells = any(cycle.training is not None for cycle in cycles)
    for index, cycle in enumerate(cycles):
        later = cycles[index + 1] if index + 1 < len(cycles) else None
        yield from _of_cycle(cycle, later, over, tells)


def _of_cycle(
    cycle: CycleTimes, later: CycleTimes | None, over: bool, tells: bool
) -> Iterator[tuple[Part, float | None]]:
    """`tells`: some cycle of the run has given a sign of training, so that one without any has not trained."""
    next_ = inf if later is None else later.began
    wait, rendezvous, starting = (
        (Part.FIRST_START,) * 3 if cycle.first else (Part.WAITING, Part.RENDEZVOUS, Part.STARTING)
    )
    yield wait, cycle.began
    yield rendezvous, cycle.started
    if cycle.training is not None:
        yield starting, cycle.training
    if cycle.ended is None:
        if later is not None:
            yield Part.UNKNOWN, next_
        else:
            yield (starting if cycle.training is None else Part.TRAINING), next_
        return
    ran = _ran(cycle.ended, cycle.happened)
    silent = starting if tells else Part.UNKNOWN
    yield (silent if cycle.training is None else Part.TRAINING), ran
    if not cycle.failed:
        yield Part.END, next_
        return
    yield Part.DETECTION, cycle.ended
    if later is None and over:
        yield Part.END, next_
        return
    decided = next_ if cycle.decided is None else cycle.decided
    yield Part.STOP, decided if cycle.stopped is None else cycle.stopped
    if cycle.stopped is not None or cycle.decided is not None:
        yield Part.DECISION, decided
    if cycle.decided is not None:
        yield Part.WAITING, next_


assert {part.value for part in Part} <= {field.name for field in fields(Cost)}

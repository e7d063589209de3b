"""Measures the death of a node whose spare's workers are parked: from the decision to the first step on all."""

from __future__ import annotations

from dataclasses import dataclass, field

from ft_bench import job as jobs
from ft_bench import training
from ft_bench.report import Row
from ft_bench.training import Mode

_ACTIVE = 2


@dataclass
class _Samples:
    """Seconds from the node's death, from when it counts as lost, and from the decision about that."""

    death: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    decided: list[float] = field(default_factory=list)


def measure(quick: bool) -> list[Row]:
    """Measure as many deaths as there are spares."""
    spares, per_node = (1, 1) if quick else (4, training.PER_NODE)
    samples = _promote(spares, per_node)
    what = f"a node of {_ACTIVE * per_node} workers dies, its spare is parked: a step on all, "
    return [
        Row(f"{what}after the decision", "s", samples.decided, None if quick else 0.5),
        Row(f"{what}after the node counts as lost", "s", samples.lost),
        Row(f"{what}after its death", "s", samples.death),
    ]


def _promote(spares: int, per_node: int) -> _Samples:
    samples = _Samples()
    with jobs.folder() as path:
        job = training.start(path, _ACTIVE + spares, _ACTIVE, Mode.IN_PROCESS, per_node)
        for local_rank in range(per_node):
            job.logged("spare_ready", spares, local_rank=str(local_rank))
        victim = 1  # node0 is the only candidate
        for _ in range(spares):
            killed = jobs.kill(job.pids[victim])
            (lost,) = job.logged("node_lost", 1, killed)
            (decided,) = job.logged("restart", 1, killed)
            again = max(worker.time for worker in job.workers.wait("step", _ACTIVE * per_node, lost.time))
            samples.death.append(again - killed)
            samples.lost.append(again - lost.time)
            samples.decided.append(again - decided.time)
            made = job.logged("workers_made", _ACTIVE, lost.time)
            (victim,) = (
                int(line.fields["writer"].removeprefix("node")) for line in made if line.fields["writer"] != "node0"
            )
    return samples

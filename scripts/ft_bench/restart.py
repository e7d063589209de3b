"""Measures a restart of a training with torch: one worker raises, until all workers have made their first new step.

With workers that start cold, with warm ones (`workers.preload`), with a function that goes on in the same process
(`workers.restart: in_process`), and with torchrun, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ft_bench import job as jobs
from ft_bench import training
from ft_bench.report import Row, median
from ft_bench.told import WorkerReport
from ft_bench.training import PER_NODE, Mode


@dataclass
class _Samples:
    """Seconds from the failure until all scripts, or functions, run again, and until all have made a step; and of the
    slowest worker's set-up and process group."""

    script: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    set_up: list[float] = field(default_factory=list)
    group: list[float] = field(default_factory=list)


def measure(quick: bool) -> list[Row]:
    """Measure all four in the same minutes."""
    nodes = 1 if quick else 4
    faults = {Mode.COLD: 3, Mode.WARM: 4, Mode.IN_PROCESS: 20}
    samples = {mode: _ours(nodes, mode, 1 if quick else faults[mode]) for mode in Mode}
    torchrun = _torchrun(nodes, 1 if quick else 3)
    cold, in_process = samples[Mode.COLD], samples[Mode.IN_PROCESS]
    targets = {Mode.COLD: None, Mode.WARM: median(cold.step) / 10, Mode.IN_PROCESS: median(cold.step) / 20}
    what = f"one of {nodes * PER_NODE} workers raises: "
    again = {mode: "the function runs" if mode is Mode.IN_PROCESS else "the scripts run" for mode in Mode}
    return [
        *(
            Row(
                f"{what}a step on all, {mode}", "s", each.step, None if quick else targets[mode], torchrun=torchrun.step
            )
            for mode, each in samples.items()
        ),
        *(Row(f"{what}{again[mode]} on all, {mode}", "s", samples[mode].script) for mode in (Mode.COLD, Mode.WARM)),
        Row(
            f"{what}{again[Mode.IN_PROCESS]} on all, in process; the rest is set-up of the training",
            "s",
            in_process.script,
            None if quick else 0.3,
        ),
        *(
            Row(f"set-up of the slowest worker's training, {mode}", "s", each.set_up, torchrun=torchrun.set_up)
            for mode, each in samples.items()
        ),
        Row("its process group alone, in process", "s", in_process.group),
    ]


def _ours(nodes: int, mode: Mode, faults: int) -> _Samples:
    samples = _Samples()
    with jobs.folder() as path:
        job = training.start(path, nodes, nodes, mode)
        workers = job.workers.wait("step", nodes * PER_NODE)
        for _ in range(faults):
            if mode is Mode.WARM:
                training.warm_ready(job, nodes, workers[0].time)
            workers = _restart(job, workers, samples)
    return samples


def _torchrun(nodes: int, faults: int) -> _Samples:
    samples = _Samples()
    with jobs.folder() as path:
        job = training.start_torchrun(path, nodes)
        workers = job.workers.wait("step", nodes * PER_NODE)
        for _ in range(faults):
            workers = _restart(job, workers, samples)
    return samples


def _restart(job: jobs.Job, workers: Sequence[WorkerReport], samples: _Samples) -> list[WorkerReport]:
    """Let one worker raise. Return the reports of the first steps after that."""
    raised, count = training.one_raises(workers), len(workers)
    again = job.workers.wait("step", count, raised)
    started, groups = (job.workers.wait(what, count, raised) for what in ("start", "group"))
    samples.script.append(max(worker.time for worker in started) - raised)
    samples.step.append(max(worker.time for worker in again) - raised)
    samples.set_up.append(max(worker.seconds for worker in again))
    samples.group.append(max(worker.seconds for worker in groups))
    return again

"""Measures a restart of a training with torch: one worker raises, until all workers have made their first new step.

With workers that start cold, with warm ones (`workers.preload`), with a function that goes on in the same process
(`workers.restart: in_process`), and with torchrun, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ft_bench import job as jobs
from ft_bench import training
from ft_bench.report import NO_TORCHRUN, Row, median
from ft_bench.seen import BenchError
from ft_bench.told import BOUND, WorkerReport
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
    torchrun, note = _torchrun(nodes, 1 if quick else 3)
    cold, again = median(samples[Mode.COLD].step), samples[Mode.IN_PROCESS].script
    targets = (
        dict.fromkeys(Mode, None) if quick else {Mode.COLD: None, Mode.WARM: cold / 10, Mode.IN_PROCESS: cold / 20}
    )
    what, theirs = f"one of {nodes * PER_NODE} workers raises: ", torchrun.step
    return [
        *(
            Row(f"{what}a step on all, {mode}", "s", each.step, targets[mode], torchrun=theirs, torchrun_note=note)
            for mode, each in samples.items()
        ),
        *(Row(f"{what}the scripts run on all, {mode}", "s", samples[mode].script) for mode in (Mode.COLD, Mode.WARM)),
        Row(f"{what}the function runs on all, in process: all but the set-up", "s", again, None if quick else 0.3),
        *(Row(f"set-up of the slowest worker's training, {mode}", "s", each.set_up) for mode, each in samples.items()),
        Row("its process group alone, in process", "s", samples[Mode.IN_PROCESS].group),
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


def _torchrun(nodes: int, faults: int) -> tuple[_Samples, str]:
    """Return its samples, and what is to be said where there are none."""
    samples = _Samples()
    with jobs.folder() as path:
        job = training.start_torchrun(path, nodes)
        workers = job.workers.wait("step", nodes * PER_NODE)
        try:
            for _ in range(faults):
                workers = _restart(job, workers, samples)
        except BenchError:
            return samples, f"> {BOUND:g} s"
    return samples, NO_TORCHRUN


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

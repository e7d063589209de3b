"""Measures what warm workers cost beside the training: memory, CPU, and what they take from its steps."""

from __future__ import annotations

import time
from itertools import pairwise

from ft_bench import job as jobs
from ft_bench import training
from ft_bench.report import Row, median
from ft_bench.told import LogLine
from ft_bench.training import PER_NODE, Mode

_CALM = 5.0
"""Seconds of training without an import beside it."""


def measure(quick: bool) -> list[Row]:
    """Measure one node: all its workers are started again, so that their warm workers are made anew."""
    memory: list[float] = []
    cpu: list[float] = []
    cores: list[float] = []
    at_once: list[float] = []
    longer: list[float] = []
    with jobs.folder() as path:
        job = training.start(path, 1, 1, Mode.WARM)
        workers = job.workers.wait("step", PER_NODE)
        for restart in range(1 if quick else 4):
            if restart:
                raised = training.one_raises(workers)
                workers = job.workers.wait("step", PER_NODE, raised)
            ready = training.warm_ready(job, 1, workers[0].time)
            used = [jobs.cpu(pid) for pid in training.warm_workers() if pid not in {worker.pid for worker in workers}]
            imports = sorted(_import(line) for line in ready)
            memory += [float(line.fields["memory_mib"]) for line in ready]
            cpu += used
            cores.append(sum(used) / (imports[-1][1] - imports[0][0]))
            at_once.append(1.0 + sum(began < ended for (_, ended), (began, _) in pairwise(imports)))
            longer.append(_longer(job, imports[0][0], imports[-1][1]))
    return [
        Row("memory of one warm worker", "MiB", memory),
        Row("CPU time of one warm worker until it waits", "s", cpu),
        Row(f"{PER_NODE} warm workers of a node: cores that they use until they wait", "", cores, 1.0),
        Row(f"{PER_NODE} warm workers of a node: imports at the same time", "", at_once, 1.0, "p95"),
        Row("the training's step while a warm worker is imported, by its step otherwise", "x", longer),
    ]


def _import(line: LogLine) -> tuple[float, float]:
    """Return when the import began and when it ended."""
    return line.time - float(line.fields["seconds"]), line.time


def _longer(job: jobs.Job, began: float, ended: float) -> float:
    """Return how many times longer the training's median step took in this time than it takes now."""
    calm = time.time()
    time.sleep(_CALM)
    beside, alone = (
        [step.seconds for step in job.workers.between("pace", *times)]
        for times in ((began, ended), (calm, time.time()))
    )
    return median(beside) / median(alone)

"""Jobs whose time is known to the second, for the accounts of many jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ft_slurm.records import JobRow
from ft_supervisor.core.protocol.cost import CycleTimes, cost
from ft_supervisor.core.protocol.model import Failure, Outcome, Verdict
from ft_supervisor.history.model import Checkpoint, CycleEnd, CycleStory, FirstFailedWorker, History

END = 50.0
"""When CYCLE ends, after its run has begun."""
CYCLE = CycleTimes(first=True, began=10.0, started=15.0, training=20.0, ended=END)
FAILURE = FirstFailedWorker("0.0", "n3", 3, Failure(3, 0))


def row(submit: int, start: int | None, end: int | None) -> JobRow:
    """Return one of Slurm's records; seconds since the epoch."""
    return JobRow(7, "7", "COMPLETED", None, None, submit, start, end, 0, "n1", "train", "/", "")


def a_run(start: float, until: float, times: Sequence[CycleTimes], saves: tuple[Checkpoint, ...] = ()) -> History:
    """Return a run that has ended, with these cycles and checkpoints, whose times count from its start."""
    cycles = tuple(_cycle(number, each, start) for number, each in enumerate(times))
    return History(
        run_id="7.0.0",
        nodes=(),
        cycles=cycles,
        takeovers=(),
        start=start,
        until=until,
        ended=until,
        verdict=Verdict(Outcome.SUCCESS, "all done"),
        training=None,
        cost=cost(start, until, [cycle.times for cycle in cycles], over=True, nodes=4, per_node=1),
        checkpoints=tuple(replace(each, at=each.at + start) for each in saves),
    )


def _cycle(number: int, times: CycleTimes, start: float) -> CycleStory:
    moved = replace(
        times,
        **{
            name: value + start
            for name in ("began", "started", "training", "happened", "ended", "stopped", "decided")
            if (value := getattr(times, name)) is not None
        },
    )
    return CycleStory(
        number=f"0.{number}",
        term=0,
        n=number,
        nodes=("n0", "n3"),
        start=moved.began,
        began="",
        choice="",
        workers_up=moved.training,
        end=moved.ended,
        ended=CycleEnd.FAILED if times.failed else CycleEnd.ENDED,
        cause="exit" if times.failed else "",
        times=moved,
        first=FAILURE if times.failed else None,
    )


def docs_job() -> tuple[list[JobRow], list[History]]:
    """Return the job that docs/jobs.md works out by hand."""
    one = CycleTimes(True, 20, 60, 100, 3100, 3110, failed=True, stopped=3120, decided=3120)
    two = CycleTimes(False, 3130, 3140, 3200, 5200, 5210, failed=True, stopped=5220, decided=5220)
    three = CycleTimes(False, 5230, 5240, 5300, ended=6800)
    saves = (500, 1300, 2100, 2900, 4150, 4950, 5950, 6750)
    first = a_run(410, 7220, [one, two, three], tuple(Checkpoint(at, float(at), 10.0) for at in saves))
    last = CycleTimes(True, 20, 60, 70, ended=2570)
    second = a_run(7410, 9990, [last], tuple(Checkpoint(at, float(at), 10.0) for at in (870, 1670, 2470)))
    return [row(0, 400, 7230), row(7230, 7400, 10_000)], [first, second]

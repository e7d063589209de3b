"""Measures the death of an agent whose daemon lives: until the decision, and until all workers run again."""

from __future__ import annotations

from ft_bench import job as jobs
from ft_bench.report import Row

_ACTIVE = 2


def measure(quick: bool) -> list[Row]:
    """Kill the agent of an active node that hosts no coordinator, again and again."""
    decided, again = _deaths(1 if quick else 5)
    what = f"an agent of {_ACTIVE} is killed, with one spare: "
    return [
        Row(f"{what}the decision", "s", decided, None if quick else 1.0),
        Row(f"{what}last new worker's exec", "s", again),
    ]


def _deaths(deaths: int) -> tuple[list[float], list[float]]:
    decided: list[float] = []
    again: list[float] = []
    with jobs.folder() as path:
        job = jobs.start_local(path, _ACTIVE + 1, _ACTIVE, candidates=[0])
        agents = {
            line.fields["writer"]: int(line.fields["pid"]) for line in job.logged("started", _ACTIVE + 1, child="agent")
        }
        after = 0.0
        for _ in range(deaths):
            (victim,) = {line.fields["writer"] for line in job.logged("active", _ACTIVE, after)} - {"node0"}
            killed = jobs.kill(agents[victim])
            (restart,) = job.logged("restart", 1, killed)
            decided.append(restart.time - killed)
            again.append(max(worker.time for worker in job.workers.wait("start", _ACTIVE, killed)) - killed)
            (replaced,) = job.logged("started", 1, killed, child="agent")
            agents[victim] = int(replaced.fields["pid"])
            job.logged("registered", 1, killed)  # it is the spare of the next death
            after = killed
    return decided, again

"""Measures the coordinator's death: until another one is in charge, and its effect on the training.

Processes are killed with SIGKILL, and their connections break at once. A node's death is silent: its host sends nothing
any more, and does not close its connections. So here a node "dies" by SIGSTOP to all of its processes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import dataclass, field

from ft_bench import job as jobs
from ft_bench import joining
from ft_bench.report import Row, median
from ft_bench.seen import BenchError
from ft_bench.told import BOUND, Exits
from ft_supervisor.core.protocol.model import Job, Timeouts
from ft_supervisor.process import tree
from ft_supervisor.process.ports import free_port

TIMEOUTS = Timeouts()
"""The timeouts of the jobs."""
CANDIDATES = Job.candidates
STEP = 0.01
"""Seconds of a worker's step."""
TORCHRUN_BOUND = 60.0
"""Seconds after which torchruns that have lost their host are given up."""
_ENDS = "job ends"


@dataclass
class _Samples:
    in_charge: list[float] = field(default_factory=list)
    registered: list[float] = field(default_factory=list)
    calm: list[float] = field(default_factory=list)
    """Longest pauses between steps before the death, in seconds."""
    pauses: list[float] = field(default_factory=list)
    """Longest pauses from the death until all is in place again, in seconds."""
    restarted: list[float] = field(default_factory=list)
    """Workers that had to be started anew."""


def measure(quick: bool) -> list[Row]:
    """Measure takeovers. torchrun's first node is compared with ours; it has no counterpart for the rest."""
    nodes, active = (3, 2) if quick else (8, 6)
    assert isinstance(CANDIDATES, int)
    killed, standby = _Samples(), _Samples()
    _coordinator(nodes, active, 1 if quick else 10, killed)
    again, starts = [], []
    ended = [] if quick else [_torchrun(active, silent=False) for _ in range(3)]
    silent = "" if quick else _torchrun_silent(active)
    for _ in range(1 if quick else 3):
        _standby(nodes, active, standby)
        lost, started = _first_node(nodes, active)
        again.append(lost)
        starts.append(started)
    real = not quick
    rows = [
        *_rows(f"coordinator killed, {nodes} nodes: ", killed, registered=0.5 if real else None),
        *_rows(
            f"its node dies as a standby, {nodes} nodes: ",
            standby,
            in_charge=TIMEOUTS.coordinator + 1.0 if real else None,
        ),
        Row(
            f"first node dies, {nodes} nodes: all workers run again",
            "s",
            again,
            TIMEOUTS.node_lost + 2.0 + median(starts) if real else None,
            torchrun_note=silent or "not tried",
        ),
        Row(f"first node dies, {nodes} nodes: of this, the workers' start", "s", starts),
    ]
    if ended:
        codes = ", ".join(sorted({str(code) for _, those in ended for code in those}))
        gone = f"torchrun's first node killed, {active} nodes: all end with {codes}"
        rows.append(Row(gone, "s", (), torchrun=[seconds for seconds, _ in ended]))
    return rows


def measure_many(quick: bool) -> list[Row]:
    """Measure takeovers with many agents. torchrun's agents end at once."""
    size, real = (32, False) if quick else (1000, True)
    taken = [_many(size) for _ in range(1 if quick else 5)]
    seconds, interrupted, successor, agents = zip(*taken, strict=True)
    what = f"coordinator killed, {size} agents: "
    note = ", no name server" if joining.without_dns() else ""
    return [
        Row(f"{what}all go on{note}", "s", seconds, 3.0 if real else None, torchrun_note=_ENDS),
        Row(f"{what}stopped workers", "", interrupted, 0.0 if real else None, "p95", torchrun_note=_ENDS),
        Row(f"{what}the successor's CPU", "s", successor),
        Row(f"{what}all agents' CPU, here on one host", "s", agents),
    ]


def _rows(
    what: str, samples: _Samples, *, registered: float | None = None, in_charge: float | None = None
) -> list[Row]:
    """Return the rows. `registered` and `in_charge`: the targets, in seconds."""
    return [
        Row(f"{what}successor in charge", "s", samples.in_charge, in_charge, torchrun_note=_ENDS),
        Row(f"{what}all registered again", "s", samples.registered, registered, torchrun_note=_ENDS),
        Row(f"{what}workers started anew", "", samples.restarted, 0.0, "p95", torchrun_note=_ENDS),
        Row(f"{what}longest step of 10 ms", "ms", [1000 * value for value in samples.pauses]),
        Row(f"{what}longest step before", "ms", [1000 * value for value in samples.calm]),
    ]


class _Training:
    """A job whose workers train, and the pauses between their steps."""

    def __init__(self, job: jobs.Job, active: int) -> None:
        self._job = job
        self._pids = [worker.pid for worker in job.workers.wait("start", active)]
        self.pause()

    def pause(self) -> float:
        """Return the longest pause between two steps of any worker since the last call, in seconds."""
        asked = time.time()
        for pid in self._pids:
            os.kill(pid, signal.SIGUSR2)
        return max(word.seconds for word in self._job.workers.wait("pause", len(self._pids), asked))

    def restarted(self) -> float:
        """Return how many workers were started after the first ones."""
        return float(self._job.workers.said("start") - len(self._pids))


def _coordinator(nodes: int, active: int, deaths: int, samples: _Samples) -> None:
    """Kill the coordinator in charge of one job again and again, when all candidates can take over."""
    assert isinstance(CANDIDATES, int)
    with jobs.folder() as path:
        job = jobs.start_local(path, nodes, active, step=STEP)
        job.logged("coordinator_listens", min(CANDIDATES, nodes))
        training, charged = _Training(job, active), "node0"
        for _ in range(deaths):
            time.sleep(random.uniform(2.5, 3.5))  # never the same part of a heartbeat
            samples.calm.append(training.pause())
            started = job.logged("started", by="incarnation", child="coordinator", writer=charged)
            killed = jobs.kill(int(max(started, key=lambda line: line.time).fields["pid"]))
            charged = _take_over(job, nodes, killed, samples)
            job.logged("coordinator_listens", 1, killed)
            samples.pauses.append(training.pause())
            samples.restarted.append(training.restarted())


def _standby(nodes: int, active: int, samples: _Samples) -> None:
    """Freeze the first candidate, the last node. Wait until it is off the list, which is later than any fence."""
    last = nodes - 1
    with jobs.folder() as path:
        job = jobs.start_local(path, nodes, active, candidates=[last, 0, 1], step=STEP)
        job.logged("coordinator_listens", 3)
        training = _Training(job, active)
        time.sleep(random.uniform(2.5, 3.5))
        samples.calm.append(training.pause())
        died = jobs.freeze(job.pids[last])
        _take_over(job, nodes - 1, died, samples)
        job.logged("node_lost", 1, died)
        samples.pauses.append(training.pause())
        samples.restarted.append(training.restarted())


def _take_over(job: jobs.Job, nodes: int, since: float, samples: _Samples) -> str:
    """Wait until a successor is in charge and so many nodes have registered with it. Return its node's name."""
    (charged,) = job.logged("in_charge", 1, since)
    samples.in_charge.append(charged.time - since)
    registered = job.logged("registered", nodes, since, "infra_rank", writer=charged.fields["writer"])
    samples.registered.append(max(line.time for line in registered) - since)
    return charged.fields["writer"]


def _first_node(nodes: int, active: int) -> tuple[float, float]:
    """Return the seconds until the workers of a cycle without node0 run, and those of them since that cycle began."""
    assert isinstance(CANDIDATES, int)
    with jobs.folder() as path:
        job = jobs.start_local(path, nodes, active)
        job.logged("coordinator_listens", min(CANDIDATES, nodes))
        time.sleep(random.uniform(1.5, 2.5))
        died = jobs.freeze(job.pids[0])
        workers = job.workers.wait("start", active, died)
        last = max(worker.time for worker in workers)
        (decided,) = job.logged("cycle_started", 1, died)
        return last - died, last - decided.time


def _many(size: int) -> tuple[float, float, float, float]:
    """Return the seconds from the death of the first of two coordinators until the last agent goes on with the other,
    how many agents had to stop their workers, and the CPU seconds of the successor and of all agents meanwhile."""
    port = free_port()
    with jobs.folder() as path:
        job = joining.job(size, port, str(path), 2)
        try:
            with (
                joining.coordinators(job, path) as (first, successor),
                joining.joiners(2, size, port, path) as processes,
            ):
                joining.go(processes)
                for _ in ("runs", "steady"):
                    joining.lines(processes, BOUND, path)
                time.sleep(random.uniform(0.5, 1.5))
                used = jobs.cpu(successor.pid), sum(jobs.cpu(process.pid) for process in processes)
                killed = time.monotonic()
                first.kill()
                told = [json.loads(line) for line in joining.lines(processes, BOUND, path)]
                released = max(one["released"] for one in told)
                return (
                    released - killed,
                    float(sum(one["interrupted"] for one in told)),
                    jobs.cpu(successor.pid) - used[0],
                    sum(jobs.cpu(process.pid) for process in processes) - used[1],
                )
        except TimeoutError:
            raise BenchError(f"{size} agents do not go on within {BOUND:g} s: {joining.last_lines(path)}") from None


def _torchrun(nodes: int, *, silent: bool) -> tuple[float, list[int]]:
    """Return the seconds until all others have ended, and their exit codes. Raises BenchError after TORCHRUN_BOUND."""
    with jobs.folder() as path:
        job = jobs.start_torchrun(path, nodes)
        job.workers.wait("start", nodes)
        time.sleep(random.uniform(1.5, 2.5))
        host, *others = job.torchruns
        exits = Exits([process.pid for process in others])
        if silent:
            died = jobs.freeze(host.pid)
        else:
            below = tree.descendants(host.pid)
            died = jobs.kill(host.pid)
            for pid in below:
                jobs.kill(pid)
        ended = exits.last(TORCHRUN_BOUND)
        return ended - died, [process.wait() for process in others]


def _torchrun_silent(nodes: int) -> str:
    """Return what the other torchruns do when their first node dies silently, in a few words."""
    try:
        seconds, _ = _torchrun(nodes, silent=True)
    except BenchError:
        return f"hangs > {TORCHRUN_BOUND:g} s"
    return f"ends: {seconds:.1f} s"

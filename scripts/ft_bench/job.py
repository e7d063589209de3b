"""Jobs of worker.py, by ft-supervisor or by torchrun, and what they tell: log lines, workers' words, exits."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ft_bench.seen import BenchError, Seen
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.local import environment
from ft_supervisor.process import tree
from ft_supervisor.process.ports import free_port

REPOSITORY = Path(__file__).resolve().parent.parent.parent
BOUND = 180.0
"""Seconds for anything that has to happen once, on a machine with too few cores for so many nodes."""
_WORKER = Path(__file__).with_name("worker.py")
_OURS = re.compile(r"(?:\s*\S+\| )?(\d{4}-\d\d-\d\dT[0-9:.]+Z) \w+ event=(\w+)(.*)")
_FIELD = re.compile(r' (\w+)=([^ "]+)')


@dataclass(frozen=True)
class LogLine:
    """One of ft-supervisor's own lines; `time` in seconds since the epoch, of which a log line has the milliseconds."""

    time: float
    event: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Told:
    """One word of a worker's; `time` in seconds since the epoch."""

    what: str
    time: float
    pid: int
    rank: int


class Workers:
    """The workers' end of the named pipe."""

    def __init__(self, folder: Path) -> None:
        pipe = folder / "workers"
        os.mkfifo(pipe)
        self.command = [sys.executable, "-I", "-S", str(_WORKER), str(pipe)]
        self._told: Seen[Told] = Seen()
        # Also open for writing, so that it does not end when no worker is there.
        self._fd = os.open(pipe, os.O_RDWR)
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, what: str, count: int, after: float = 0.0) -> list[Told]:
        """The first word `what` of each rank that was said after that time, once `count` ranks have said it."""

        def pick(told: Sequence[Told]) -> list[Told] | None:
            first: dict[int, Told] = {}
            for one in told:
                if one.what == what and one.time > after:
                    first.setdefault(one.rank, one)
            return list(first.values()) if len(first) >= count else None

        return self._told.wait(pick, BOUND, f"{count} workers that say {what}")

    def _read(self) -> None:
        with os.fdopen(self._fd) as lines:
            for line in lines:
                what, when, pid, rank = line.split()
                self._told.add(Told(what, float(when), int(pid), int(rank)))


class Job:
    """Processes, one for each node, with their workers' words and, where they are ours, their log lines."""

    def __init__(self, folder: Path) -> None:
        self.workers = Workers(folder)
        self.pids: list[int] = []
        """One for each node: the daemons, or the torchruns."""
        self._lines: Seen[LogLine] = Seen()

    def follow(self, process: subprocess.Popen[str]) -> None:
        """Read its log lines from its standard output, in a thread."""

        def read() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    if (parsed := parse(line)) is not None:
                        self._lines.add(parsed)

        threading.Thread(target=read, daemon=True).start()

    def logged(self, event: str, nodes: int = 1, after: float = 0.0, **fields: str) -> list[LogLine]:
        """The first line with this event and these fields of each node after that time, once so many nodes have one."""

        def pick(lines: Sequence[LogLine]) -> list[LogLine] | None:
            first: dict[str, LogLine] = {}
            for line in lines:
                # a line's time is cut to the millisecond
                if line.event == event and line.time > after - 0.001 and fields.items() <= line.fields.items():
                    first.setdefault(line.fields.get("node", ""), line)
            return list(first.values()) if len(first) >= nodes else None

        return self._lines.wait(pick, BOUND, f"event={event} of {nodes} nodes")


def parse(line: str) -> LogLine | None:
    """A line of ours, with or without the node's name that `local` puts before it; None for any other.

    Of a field that came twice the last counts: what the writer says of itself is at the line's end.
    """
    match = _OURS.match(line)
    if match is None:
        return None
    return LogLine(datetime.fromisoformat(match[1]).timestamp(), match[2], dict(_FIELD.findall(match[3])))


class Exits:
    """Made before the end: tells when all of these processes are gone."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._fds = [os.pidfd_open(pid) for pid in pids]

    def last(self) -> float:
        """When the last of them ended, in seconds since the epoch. Raises BenchError when one does not."""
        poll = select.poll()
        for fd in self._fds:
            poll.register(fd, select.POLLIN)
        left, until = len(self._fds), time.monotonic() + BOUND
        while left and (wait := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(wait * 1000):
                poll.unregister(fd)
                left -= 1
        ended = time.time()
        for fd in self._fds:
            os.close(fd)
        if left:
            raise BenchError(f"{left} processes did not end within {BOUND:g} s")
        return ended


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary one; at the end all that this process started is killed."""
    path = Path(tempfile.mkdtemp(prefix="ft-bench-"))
    try:
        yield path
    finally:
        tree.sweep(os.getpid())
        tree.reap_orphans(())
        for run in path.glob("runs/*/*"):
            shutil.rmtree(local_folder(run.name, "any").parent, ignore_errors=True)
        shutil.rmtree(path, ignore_errors=True)


def environ() -> dict[str, str]:
    """This process's, for children that import ft_supervisor."""
    paths = [str(REPOSITORY / "supervisor"), str(REPOSITORY / "slurm"), str(REPOSITORY / "scripts")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def write_config(path: Path, active: int, command: Sequence[str]) -> Path:
    """A job.yaml with every timeout as it comes, and a budget that no bench spends."""
    config = path / "job.yaml"
    words = ", ".join(f"'{word}'" for word in command)
    config.write_text(
        f"name: bench\ncluster: none\nnodes: {{active: {active}}}\n"
        f"workers: {{per_node: 1, command: [{words}]}}\nrun_dir: runs/{{job_id}}\n"
        "policy: {failures: [{match: any, action: restart, budget: {max: 100}}]}\n"
    )
    return config


def start_local(path: Path, nodes: int, active: int) -> Job:
    """`ft-supervisor local` in this folder; returns when all workers run and all nodes have met the coordinator."""
    job = Job(path)
    config = write_config(path, active, job.workers.command)
    line = [sys.executable, "-P", "-m", "ft_supervisor", "local", "--config", str(config), "-N", str(nodes)]
    job.follow(_popen(line, path, environ(), subprocess.PIPE))
    job.workers.wait("start", active)
    job.logged("connected", nodes, proc="agent")
    (state,) = path.glob("runs/*/*/local.json")
    job.pids = [int(node["pid"]) for node in json.loads(state.read_text())["nodes"]]
    return job


def start_daemon(path: Path) -> Job:
    """The daemon of a job with one node, started directly; returns at once."""
    job = Job(path)
    config = write_config(path, 1, job.workers.command)
    number = environment.job_id()
    (path / "runs" / str(number) / environment.run_id(number)).mkdir(parents=True)  # as `local` does; see folder()
    env = environment.of_node(environ(), number, 1, 0, path, "bench")
    line = [sys.executable, "-P", "-m", "ft_supervisor", "--config", str(config)]
    process = _popen(line, path, env, subprocess.PIPE)
    job.follow(process)
    job.pids = [process.pid]
    return job


def start_torchrun(path: Path, nodes: int) -> Job:
    """One torchrun for each node, meeting by its c10d rendezvous; returns at once."""
    job = Job(path)
    line = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nodes), "--nproc-per-node", "1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port('127.0.0.1')}", "--rdzv-id", "bench"),
        *("--max-restarts", "100", "--no-python", *job.workers.command),
    ]
    job.pids = [_popen(line, path, environ(), subprocess.DEVNULL).pid for _ in range(nodes)]
    return job


def kill(pid: int) -> float:
    """SIGKILL; when, in seconds since the epoch."""
    now = time.time()
    os.kill(pid, signal.SIGKILL)
    return now


def _popen(line: Sequence[str], path: Path, env: Mapping[str, str], stdout: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        line, cwd=path, env=env, text=True, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT
    )

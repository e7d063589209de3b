"""Starts jobs of worker.py, by ft-supervisor or by torchrun, and freezes and kills their processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ft_bench.seen import GrowingList
from ft_bench.told import BOUND, LogLine, Workers, parse
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.local import environment
from ft_supervisor.process import tree
from ft_supervisor.process.ports import free_port

_CPUCLOCK_SCHED = 2
"""The clock of a process's CPU time (clock_getcpuclockid(3); the kernel's posix-timers.h has the arithmetic)."""
REPOSITORY = Path(__file__).resolve().parent.parent.parent
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""For torchrun: its workers use the rendezvous' store by default, and hang after a restart on several nodes: see
docs/internals/torch.md."""


class Job:
    """A job's processes, one for each node, with their workers' reports and, where they are ours, their log lines."""

    def __init__(self, folder: Path) -> None:
        self.workers = Workers(folder)
        self.pids: list[int] = []
        """One for each node, by infra_rank: the daemons, or the torchruns, of which the first hosts the rendezvous."""
        self.torchruns: list[subprocess.Popen[str]] = []
        self._lines: GrowingList[LogLine] = GrowingList()

    def follow(self, process: subprocess.Popen[str]) -> None:
        """Read its log lines from its standard output, in a thread."""

        def read() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    if (parsed := parse(line)) is not None:
                        self._lines.add(parsed)

        threading.Thread(target=read, daemon=True).start()

    def logged(
        self, event: str, nodes: int = 1, after: float = 0.0, by: str = "writer", **fields: str
    ) -> list[LogLine]:
        """Return each node's first line with this event and these fields after that time, once `nodes` have one.

        `by`: the field that names the node.
        """

        def pick(lines: Sequence[LogLine]) -> list[LogLine] | None:
            first: dict[str, LogLine] = {}
            for line in lines:
                # a line's time is cut to the millisecond
                if line.event == event and line.time > after - 0.001 and fields.items() <= line.fields.items():
                    first.setdefault(line.fields.get(by, ""), line)
            return list(first.values()) if len(first) >= nodes else None

        return self._lines.wait(pick, BOUND, f"event={event} of {nodes} nodes")


@contextmanager
def folder() -> Iterator[Path]:
    """Make a temporary folder. At the end all processes that this one started are killed, and the folder is removed."""
    path = Path(tempfile.mkdtemp(prefix="ft-bench-"))
    try:
        yield path
    finally:
        tree.sweep(os.getpid())
        tree.reap_orphans(())
        for run in path.glob("runs/*/*"):
            shutil.rmtree(local_folder(run.name), ignore_errors=True)
        shutil.rmtree(path, ignore_errors=True)


def environ() -> dict[str, str]:
    """Return this process's environment, for children that import ft_supervisor."""
    paths = [str(REPOSITORY / "supervisor"), str(REPOSITORY / "slurm"), str(REPOSITORY / "scripts")]
    return {**os.environ, "FT_SUPERVISOR__LOGS__LEVEL": "debug", "PYTHONPATH": os.pathsep.join(paths)}


def write_config(
    path: Path,
    active: int,
    command: Sequence[str],
    candidates: Sequence[int] = (),
    per_node: int = 1,
    **workers: object,
) -> Path:
    """Write a job.yaml with the built-in timeouts, these candidates if any, and a budget that no bench spends.

    `workers`: more of its keys `workers`.
    """
    config = path / "job.yaml"
    budget = {"max": 1000, **({"in_process": {"max": 1000}} if "restart" in workers else {})}
    config.write_text(
        f"name: bench\ncluster: none\nnodes: {{active: {active}}}\n"
        f"workers: {json.dumps({'per_node': per_node, 'command': command, **workers})}\n"
        "run_dir: runs/{job_id}\n"
        f"policy:\n  failures: [{{match: any, action: restart, budget: {json.dumps(budget)}}}]\n"
        + (f"  coordinator: {{candidates: {list(candidates)}}}\n" if candidates else "")
    )
    return config


def start_local(path: Path, nodes: int, active: int, candidates: Sequence[int] = (), step: float | None = None) -> Job:
    """Start `ft-supervisor local` in this folder. Return when all workers run and all nodes are connected.

    `candidates` as in write_config; `step` in seconds, as in worker.py.
    """
    job = Job(path)
    command = [*job.workers.command, *([] if step is None else [str(step)])]
    local(job, path, nodes, write_config(path, active, command, candidates))
    job.workers.wait("start", active)
    job.logged("connected", nodes, proc="agent")
    job.pids = daemons(path)
    return job


def daemons(path: Path) -> list[int]:
    """Return the pids of a local job's daemons, by infra_rank."""
    (state,) = path.glob("runs/*/*/local.json")
    return [int(node["pid"]) for node in json.loads(state.read_text())["nodes"]]


def local(job: Job, path: Path, nodes: int, config: Path) -> None:
    """Start `ft-supervisor local` with this job.yaml. Return at once."""
    line = [sys.executable, "-P", "-m", "ft_supervisor", "local", "--config", str(config), "-N", str(nodes)]
    job.follow(_popen(line, path, environ(), subprocess.PIPE))


def start_daemon(path: Path) -> Job:
    """Start the daemon of a job with one node directly. Return at once."""
    job = Job(path)
    config = write_config(path, 1, job.workers.command)
    number = environment.new_job_id()
    (path / "runs" / str(number) / environment.run_id(number)).mkdir(parents=True)  # as `local` does; see folder()
    env = environment.of_node(environ(), number, 1, 0, path, "bench")
    line = [sys.executable, "-P", "-m", "ft_supervisor", "--config", str(config)]
    process = _popen(line, path, env, subprocess.PIPE)
    job.follow(process)
    job.pids = [process.pid]
    return job


def start_torchrun(path: Path, nodes: int) -> Job:
    """Start one torchrun for each node, with its c10d rendezvous. Return at once."""
    job = Job(path)
    torchrun(job, path, nodes, 1, job.workers.command)
    return job


def torchrun(job: Job, path: Path, nodes: int, per_node: int, command: Sequence[str]) -> None:
    """Start one torchrun for each node, with this command. Return at once."""
    endpoint = f"127.0.0.1:{free_port('127.0.0.1')}"
    for rank in range(nodes):
        line = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nodes)),
            *("--nproc-per-node", str(per_node)),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "bench"),
            *("--rdzv-conf", f"is_host={int(rank == 0)}", "--max-restarts", "100"),
            *("--no-python", *command),
        ]
        job.torchruns.append(_popen(line, path, {**environ(), **_OWN_STORE, "TMPDIR": str(path)}, subprocess.DEVNULL))
    job.pids = [process.pid for process in job.torchruns]


def cpu(pid: int) -> float:
    """Return the seconds of a core that the process has used so far."""
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


def freeze(root: int) -> float:
    """Send SIGSTOP to the process and everything below it. As a dead host they keep connections open, silently.

    Return when it began, in seconds since the epoch.
    """
    now = time.time()
    stopped = {root}
    os.kill(root, signal.SIGSTOP)
    while new := {pid for pid, (state, _) in tree.descendants(root).items() if state not in "ZX"} - stopped:
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= new  # and what they have forked before they stood still
    return now


def kill(pid: int) -> float:
    """Send SIGKILL. Return when, in seconds since the epoch."""
    now = time.time()
    os.kill(pid, signal.SIGKILL)
    return now


def _popen(line: Sequence[str], path: Path, env: Mapping[str, str], stdout: int) -> subprocess.Popen[str]:
    env = {**env, "TORCHINDUCTOR_CACHE_DIR": str(path / "inductor")}  # its default is a folder that stays
    return subprocess.Popen(
        line, cwd=path, env=env, text=True, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT
    )

"""Starts workers in the environment that torchrun would give them, with given ranks instead of a rendezvous.

The environment variables, error files and the watchdog are those of torch's elastic agent. It would start all of a
node's workers or none, so its way ends when it has made them ready, and each is started here as its SubprocessHandler
does. workers.py watches and stops them, because torch's ways block for up to 30 s (docs/internals/torch.md). Nothing
here uses a store or DNS.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import HashStore, Store
from torch.distributed.elastic.agent.server.api import Worker, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.utils.api import macros

from ft_supervisor.agent import stack_files
from ft_supervisor.core.protocol.ledger import EMPTY
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Cycle, Job
from ft_supervisor.core.protocol.settings import RestartMode
from ft_supervisor.process.tree import pdeath_command
from ft_supervisor.store.tcp import ADDED_TO_ENVIRONMENT

ROLE = "default"
"""The role that torchrun gives its workers."""

_SIGNALS = "TORCHELASTIC_SIGNALS_TO_HANDLE"
_TORCHRUN_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
_ONE = Run(0, Cycle(0, 0), "0", 0, 1, 0, 0, "one", 1, EMPTY, 0.0)
_OTHER = Run(0, Cycle(0, 1), "0-1", 1, 2, 1, 3, "two", 2, EMPTY, 0.0)
"""It differs from _ONE in all that a cycle decides."""
_IN_PROCESS = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "NCCL_NVLS_ENABLE": "0",
}
"""Where workers go on in their processes: torch's watchdog threads must not end a process because a group of it fails,
as they do by default (torch.distributed.distributed_c10d._abort_process_group; torch/csrc/distributed/c10d/
ProcessGroupNCCL.hpp). The agent's own hang watch is there instead. NVLS is off, as NVIDIA's Wrapper for restarts in the
process asks: an abort of a communicator that uses it is not safe."""
_NOTIFY = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


def quiet_torch() -> None:
    """Keep torch's own log lines about workers out of ours."""
    logging.disable(logging.CRITICAL)  # we do not use logging otherwise, and torch gives many of its loggers handlers


def worker_environment(job: Job) -> None:
    """Make this process's environment the one that workers inherit. Call it before there are threads.

    It is the daemon's with `job.env` and torchrun's OMP_NUM_THREADS, without the variables for our own store: the C
    library keeps those, os.environ and so the workers do not. Workers do not inherit the notify socket of this
    process's parent either: they have their own.
    """
    for name in _NOTIFY:
        os.environ.pop(name, None)
    for name, value in ADDED_TO_ENVIRONMENT.items():
        os.environ.pop(name, None)
        os.putenv(name, value)
    os.environ.update(job.env)
    if job.settings.restart is RestartMode.IN_PROCESS:
        for name, value in _IN_PROCESS.items():
            os.environ.setdefault(name, value)
    if job.per_node > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.update(stack_files.variables(job))


class NodeRendezvous(RendezvousHandler):
    """The result of our own rendezvous, a Run, in the form that torch's agent expects."""

    def __init__(self, run_id: str) -> None:
        self.run: Run | None = None
        self._run_id = run_id
        self._store = HashStore()  # never used; torch requires one

    def next_rendezvous(self) -> RendezvousInfo:
        """Return the newest Run's place in the world. Never blocks."""
        assert self.run is not None
        place = RendezvousStoreInfo(self.run.master_addr, self.run.master_port)
        return RendezvousInfo(self._store, self.run.group_rank, self.run.group_world_size, place)

    def get_backend(self) -> str:
        """Return this rendezvous' name."""
        return "ft-supervisor"

    def get_run_id(self) -> str:
        """Return the job's run_id."""
        return self._run_id

    def is_closed(self) -> bool:
        """Return False: the coordinator ends a job, never the rendezvous."""
        return False

    def set_closed(self) -> None:
        """Do nothing."""

    def num_nodes_waiting(self) -> int:
        """Return 0: the coordinator decides on membership."""
        return 0

    def shutdown(self) -> bool:
        """Return True: nothing is open."""
        return True


@dataclass(frozen=True)
class WorkerStreams:
    """One worker's standard output and error, as file descriptors of this process, and its additional environment
    variables."""

    stdout: int
    stderr: int
    env: Mapping[str, str]


class _Ready(Exception):
    """Leaves torch's start of workers when all is ready for it. `envs`: by local rank what torch adds to the
    environment; `error_files`: where torch's @record writes."""

    def __init__(self, envs: Mapping[int, dict[str, str]], error_files: Mapping[int, str]) -> None:
        super().__init__("not started by torch")
        self.envs = envs
        self.error_files = error_files


class _Logs(DefaultLogsSpecs):
    """torch's error files. `reify` gets torch's environment by local rank, just before torch would start workers."""

    files = True
    """Whether there will be workers: only then are folders for their error files made."""

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        error_files = super().reify(envs).error_files if self.files else {}
        raise _Ready(envs, error_files)


class NodeAgent(LocalElasticAgent):
    """Prepares one group of workers at a time, and starts each. Every method is for the main thread: a worker's death
    signal fires when the thread that started it ends."""

    def __init__(self, job: Job) -> None:
        self._command = job.command
        self._rendezvous_handler = NodeRendezvous(job.run_id)
        self._error_files: Mapping[int, str] = {}
        spec = WorkerSpec(
            role=ROLE,
            local_world_size=job.per_node,
            entrypoint=job.command[0],
            rdzv_handler=self._rendezvous_handler,
            max_restarts=job.max_restarts,
        )
        self._logs = _Logs(log_dir=str(Path(job.local_folder) / "workers"))
        super().__init__(spec, self._logs)

    def prepare(self, run: Run) -> dict[int, dict[str, str]]:
        """Return what torch adds to the environment of each worker of `run`, by local rank; make their error files'
        folders. The former workers must be gone. Raises OSError."""
        envs, self._error_files = self._environments(run, files=True)
        return envs

    def lasting(self) -> dict[int, dict[str, str]]:
        """Return, by local rank, those of these variables that are the same in all cycles. No workers may run."""
        one, other = (self._environments(run, files=False)[0] for run in (_ONE, _OTHER))
        self._shutdown(timeout=0)
        return {
            local_rank: {name: value for name, value in env.items() if other[local_rank][name] == value}
            for local_rank, env in one.items()
        }

    def start(
        self, local_rank: int, env: Mapping[str, str], streams: WorkerStreams, command: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start one worker, or what `command` is, with `env` added to this process's environment. Raises OSError."""
        return subprocess.Popen(
            _words(command or self._command, local_rank),
            env={**os.environ, **env, **streams.env},
            stdout=streams.stdout,
            stderr=streams.stderr,
            start_new_session=True,
        )

    def error_file(self, local_rank: int) -> Path | None:
        """Return the file to which torch's @record lets this worker write its error; None before a start."""
        return Path(self._error_files[local_rank]) if local_rank in self._error_files else None

    def release(self) -> None:
        """Release what torch keeps for a group whose processes are gone: the watchdog."""
        self._shutdown(timeout=0)
        self._error_files = {}

    def _environments(self, run: Run, *, files: bool) -> tuple[dict[int, dict[str, str]], Mapping[int, str]]:
        """Return what torch adds to the workers' environment, and their error files, by local rank."""
        self._logs.files = files
        group = self._worker_group
        group.spec.max_restarts = run.max_restarts
        # torch gives workers the difference of the two
        self._remaining_restarts = run.max_restarts - run.restart_count
        self._rendezvous_handler.run = run
        self._rendezvous(group)
        try:
            self._start_workers(group)
        except _Ready as ready:
            return {rank: {**env, _SIGNALS: _TORCHRUN_SIGNALS} for rank, env in ready.envs.items()}, ready.error_files
        raise AssertionError("torch has started workers without asking where their output goes")

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        info = self._rendezvous_handler.next_rendezvous()
        place = info.bootstrap_store_info
        assert place is not None
        group: Any = worker_group  # torch declares these None
        group.store = info.store
        group.group_rank = info.rank
        group.group_world_size = info.world_size
        group.master_addr = place.master_addr
        group.master_port = place.master_port
        group.workers = self._assign_worker_ranks(info.store, info.rank, info.world_size, group.spec)

    def _assign_worker_ranks(
        self, store: Store, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        size = group_world_size * spec.local_world_size
        first = group_rank * spec.local_world_size
        return [Worker(i, first + i, first + i, size, size) for i in range(spec.local_world_size)]


def _words(command: Sequence[str], local_rank: int) -> list[str]:
    """Return the words to start: torch replaces ${local_rank}, as torchrun does, and $$ by $, which a shell's $$ has to
    survive."""
    words = [word.replace("$$", "$$$$") for word in pdeath_command(command)]
    return macros.substitute(words, str(local_rank))

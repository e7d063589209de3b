"""torch's elastic agent, told its rank instead of finding it out: a worker sees what torchrun would give it.

Only what starts workers is torch's (its environment variables, error files, log redirection, watchdog); stopping and
watching them is workers.py's, because torch's ways block for up to 30 s (docs/internals/torch.md). Nothing here asks a
store or DNS.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import HashStore, Store
from torch.distributed.elastic.agent.server.api import Worker, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.process.tree import pdeath_command
from ft_supervisor.store.tcp import ADDED_TO_ENVIRONMENT

ROLE = "default"
"""The role that torchrun gives its workers."""

_SIGNALS = "TORCHELASTIC_SIGNALS_TO_HANDLE"
_TORCHRUN_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
_NOTIFY = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


def quiet_torch() -> None:
    """Keep torch's own log lines about workers out of ours, and its signal handlers out of this process."""
    logging.disable(logging.CRITICAL)  # we have no other use of it, and torch gives many of its loggers handlers
    # With any name in it torch would take that signal over; a worker sees torchrun's value all the same.
    os.environ[_SIGNALS] = ""


def worker_environment(job: Job) -> None:
    """Make this process's environment what workers shall inherit. Call it before there are threads.

    `job.env` on top of the daemon's, torchrun's OMP_NUM_THREADS, and none of what is meant for our own store: the
    C library keeps seeing that, os.environ and so the workers do not. Nor do they see the notify socket of whoever
    started us: they have their own.
    """
    for name in _NOTIFY:
        os.environ.pop(name, None)
    for name, value in ADDED_TO_ENVIRONMENT.items():
        os.environ.pop(name, None)
        os.putenv(name, value)
    os.environ.update(job.env)
    if job.per_node > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


class NodeRendezvous(RendezvousHandler):
    """The outcome of our own rendezvous, a Run, in the form that torch's agent asks for."""

    def __init__(self, run_id: str) -> None:
        self.run: Run | None = None
        self._run_id = run_id
        self._store = HashStore()  # never used; torch insists on one

    def next_rendezvous(self) -> RendezvousInfo:
        """The newest Run's place in the world. Never blocks."""
        assert self.run is not None
        place = RendezvousStoreInfo(self.run.master_addr, self.run.master_port)
        return RendezvousInfo(self._store, self.run.group_rank, self.run.group_world_size, place)

    def get_backend(self) -> str:
        """This rendezvous' name."""
        return "ft-supervisor"

    def get_run_id(self) -> str:
        """The job's run_id."""
        return self._run_id

    def is_closed(self) -> bool:
        """The end is told by the coordinator, never here."""
        return False

    def set_closed(self) -> None:
        """Nothing to do."""

    def num_nodes_waiting(self) -> int:
        """Membership is the coordinator's business."""
        return 0

    def shutdown(self) -> bool:
        """Nothing is open."""
        return True


@dataclass(frozen=True)
class WorkerStreams:
    """What one worker is started with: the paths of its standard output and error, and environment variables."""

    stdout: str
    stderr: str
    env: Mapping[str, str]


class _Logs(DefaultLogsSpecs):
    """torch's error files, and our own streams. `reify` gets torch's environment by local rank, once a start."""

    streams: Mapping[int, WorkerStreams]

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        destination: LogsDest = super().reify(envs)
        for local_rank, env in envs.items():
            own = self.streams[local_rank]
            env.update(own.env)
            env[_SIGNALS] = _TORCHRUN_SIGNALS
            destination.stdouts[local_rank], destination.stderrs[local_rank] = own.stdout, own.stderr
        return destination


def _close_outputs(handler: SubprocessHandler) -> None:
    """torch keeps them open for as long as the worker runs; then its pipes would have no end."""
    for name in ("_stdout", "_stderr"):
        file = getattr(handler, name, None)
        if file is not None:
            file.close()


class NodeAgent(LocalElasticAgent):
    """Starts one group of workers at a time. Every method is for the main thread: a worker's death signal fires
    when the thread that started it ends."""

    def __init__(self, job: Job) -> None:
        # torch fills ${local_rank} in, as torchrun does, and makes one $ of two: a shell's $$ has to survive that
        entrypoint, *arguments = [word.replace("$$", "$$$$") for word in pdeath_command(job.command)]
        self._rendezvous_handler = NodeRendezvous(job.run_id)
        spec = WorkerSpec(
            role=ROLE,
            local_world_size=job.per_node,
            entrypoint=entrypoint,
            args=tuple(arguments),
            rdzv_handler=self._rendezvous_handler,
            max_restarts=job.max_restarts,
        )
        self._logs = _Logs(log_dir=str(Path(job.local_folder) / "workers"))
        super().__init__(spec, self._logs)

    def start(self, run: Run, streams: Mapping[int, WorkerStreams]) -> dict[int, SubprocessHandler]:
        """Start the workers of `run`; the former ones must be gone. Their processes by local rank.

        Raises OSError; some may have been started then, and nobody but a sweep knows of them.
        """
        self._logs.streams = streams
        group = self._worker_group
        group.spec.max_restarts = run.max_restarts
        # torch tells workers the difference of the two
        self._remaining_restarts = run.max_restarts - run.restart_count
        self._rendezvous_handler.run = run
        self._rendezvous(group)
        self._start_workers(group)
        handlers: dict[int, SubprocessHandler] = getattr(self._pcontext, "subprocess_handlers", {})
        for handler in handlers.values():
            _close_outputs(handler)
        return handlers

    def error_file(self, local_rank: int) -> Path | None:
        """Where torch's @record lets this worker write its error; None before a start."""
        files: dict[int, str] = getattr(self._pcontext, "error_files", {})
        return Path(files[local_rank]) if local_rank in files else None

    def release(self) -> None:
        """Let go of what torch keeps for a group whose processes are gone: log readers, the watchdog."""
        self._shutdown(timeout=0)
        self._pcontext = None

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

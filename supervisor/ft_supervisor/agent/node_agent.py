"""Starts workers by torch's elastic agent, with given ranks instead of a rendezvous: a worker gets the environment that
torchrun would give it.

Only the start of workers is torch's (its environment variables, error files, log redirection, watchdog). workers.py
watches and stops them, because torch's ways block for up to 30 s (docs/internals/torch.md). Nothing here uses a store
or DNS.
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
    logging.disable(logging.CRITICAL)  # we do not use logging otherwise, and torch gives many of its loggers handlers
    # If it names any signal, torch takes that signal over. A worker gets torchrun's value all the same.
    os.environ[_SIGNALS] = ""


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
    if job.per_node > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


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
    """The paths of one worker's standard output and error, and its additional environment variables."""

    stdout: str
    stderr: str
    env: Mapping[str, str]


class _Logs(DefaultLogsSpecs):
    """torch's error files, and our own streams. `reify` gets torch's environment by local rank, once per start."""

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
    """Close the output files that torch keeps open for as long as the worker runs; with them its pipes would have no
    end."""
    for name in ("_stdout", "_stderr"):
        file = getattr(handler, name, None)
        if file is not None:
            file.close()


class NodeAgent(LocalElasticAgent):
    """Starts one group of workers at a time. Every method is for the main thread: a worker's death signal fires
    when the thread that started it ends."""

    def __init__(self, job: Job) -> None:
        # torch replaces ${local_rank}, as torchrun does, and $$ by $: a shell's $$ has to survive that
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
        """Start the workers of `run`; the former ones must be gone. Return their processes by local rank.

        Raises OSError; some may have been started then, and only a sweep finds them.
        """
        self._logs.streams = streams
        group = self._worker_group
        group.spec.max_restarts = run.max_restarts
        # torch gives workers the difference of the two
        self._remaining_restarts = run.max_restarts - run.restart_count
        self._rendezvous_handler.run = run
        self._rendezvous(group)
        self._start_workers(group)
        handlers: dict[int, SubprocessHandler] = getattr(self._pcontext, "subprocess_handlers", {})
        for handler in handlers.values():
            _close_outputs(handler)
        return handlers

    def error_file(self, local_rank: int) -> Path | None:
        """Return the file to which torch's @record lets this worker write its error; None before a start."""
        files: dict[int, str] = getattr(self._pcontext, "error_files", {})
        return Path(files[local_rank]) if local_rank in files else None

    def release(self) -> None:
        """Release what torch keeps for a group whose processes are gone: log readers, the watchdog."""
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

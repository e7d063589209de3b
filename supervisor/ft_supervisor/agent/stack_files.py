"""Files and variables for the evidence of hung workers: the sockets of their worker servers, and their stacks."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from ft_supervisor import worker_server
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.evidence.gather import Worker
from ft_supervisor.process import atomic
from ft_supervisor.process.log import log
from ft_supervisor.run_folder import ownfolder

_PATH = 107 - len("/4194304")
"""Bytes of the folder of a socket whose name is a pid, unix(7)."""


def sockets(job: Job) -> Path:
    """Return the folder in which a worker's server has its socket, by pid."""
    return Path(job.local_folder) / "evidence"


def variables(job: Job) -> dict[str, str]:
    """Make that folder, and return the variables for all workers' processes; none where no server can be. A line in
    the log says why."""
    folder = sockets(job)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        log("evidence_folder_failed", "warning", path=folder, error=error)
        return {}
    if len(os.fsencode(folder)) > _PATH:
        log("evidence_folder_failed", "warning", path=folder, error="the path is too long for a socket")
        return {}
    return {worker_server.FOLDER: str(folder), worker_server.AGENT: str(os.getpid())}


def make_way(job: Job) -> None:
    """Remove the sockets of processes that are gone."""
    with suppress(OSError):
        for path in sockets(job).iterdir():
            if not Path(f"/proc/{path.name}").exists():
                path.unlink(missing_ok=True)


class StackFiles:
    """The files with the stacks of one cycle's workers. Each thread that takes some calls `keep`."""

    def __init__(self, run_folder: Path, cycle: str, count: int) -> None:
        self._run_folder = run_folder
        self._cycle = cycle
        self._left = count
        self._lock = threading.Lock()

    def keep(self, worker: Worker, text: str) -> None:
        """Write the stacks to run_folder/stacks/CYCLE/RANK.txt; log when all are written. Raises OSError."""
        head = f"rank {worker.rank} (local rank {worker.local_rank}), {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if worker.said:
            head += f"\nit last said: {worker.said}"
        folder = ownfolder.make(self._run_folder, "stacks", self._cycle)
        atomic.replace(folder / f"{worker.rank}.txt", f"{head}\n\n{text}\n".encode(errors="replace"), 0o600)
        with self._lock:
            self._left -= 1
            if self._left:
                return
        log("stacks_taken", "debug", path=folder)

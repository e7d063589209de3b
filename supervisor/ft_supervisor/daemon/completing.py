"""Ends the job in Slurm where its batch script cannot, with a file in the run's folder while that is not done.

Used by the daemon that closes the job, and by `launch`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from ft_slurm import completion
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import file_failed, log
from ft_supervisor.run_folder import left_running
from ft_supervisor.run_folder.left_running import LeftRunning

FILE_BOUND = 2.0
"""Seconds for one write. If the file system hangs for longer, nothing more is written."""


class Completing:
    """Runs `completion.complete` in a thread, from now on. `folder`: the run's, None where it is not known."""

    def __init__(
        self,
        job_id: int,
        step_id: int | None,
        restart_count: int,
        exit_code: int,
        folder: Path | None,
        *,
        host_lost: bool,
    ) -> None:
        self._job_id = job_id
        self._folder = folder
        self._lock = threading.Lock()
        self._given_up = False
        self._told = False
        """Whether Slurm has been told that the job is complete, as far as is known."""
        self._writing: Background[None] | None = None
        self._work = Background(
            "ending the job",
            lambda: completion.complete(
                job_id, step_id, exit_code, restart_count=restart_count, host_lost=host_lost, log=self._log
            ),
            file_failed,
        )

    def wait(self, bound: float) -> bool:
        """Return whether it has come to an end, good or bad, within `bound` seconds."""
        return self._work.wait(bound)

    def give_up(self, why: str) -> None:
        """Log that the job is left running, as this process has to end. Logs nothing if Slurm has just been told."""
        self._given_up = True
        if not self._told:
            self.log("job_left_running", "warning", job=self._job_id, why=why, ends_it=f"scancel {self._job_id}")

    def _log(self, event: str, level: str = "info", **fields: object) -> None:
        """Log what `complete` reports; nothing after give_up, when its processes are ended with this one."""
        if not self._given_up:
            self.log(event, level, **fields)

    def log(self, event: str, level: str = "info", **fields: object) -> None:
        """Write the file, then the log: when a job is completed, this process is killed."""
        why, seconds = str(fields.get("why", "")), fields.get("seconds_left")
        self._told = event in ("completing_job", "job_completed")
        match event:
            case "waiting_to_complete_job":
                self._left(why, float(seconds) if isinstance(seconds, int | float) else None)
            case "job_left_running":
                self._left(why, None)
            case "completing_job" | "nothing_to_complete":
                self._do(left_running.remove)
        self._flush()
        log(event, level, **fields)

    def _left(self, why: str, seconds: float | None) -> None:
        now = time.time()
        left = LeftRunning(self._job_id, why, now, None if seconds is None else now + seconds)
        self._do(lambda folder: left_running.write(folder, left))

    def _do(self, work: Callable[[Path], None]) -> None:
        with self._lock:
            if (folder := self._folder) is not None and (self._writing is None or self._writing.wait(FILE_BOUND)):
                self._writing = Background(left_running.NAME, lambda: work(folder), file_failed)

    def _flush(self) -> None:
        if self._writing is not None:
            self._writing.wait(FILE_BOUND)

"""Collects the state of a job for `status`: from its run's files, and from Slurm if they are not enough."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ft_slurm import job_states
from ft_slurm.client import open_client
from ft_slurm.errors import NoCommands, SlurmError
from ft_slurm.job_states import Meaning
from ft_supervisor.core.words import one_line
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import find, runs
from ft_supervisor.run_folder.find import RunSearch
from ft_supervisor.status import judgement as statuses
from ft_supervisor.status.judgement import Files, JobStatus, RunState, Slurm

FILES_BOUND = 12.0
"""Seconds to wait for run_dir, with the wait for the next snapshot."""
AGAIN_BOUND = 2.0
"""Seconds to wait for run_dir with --watch, which reads it every second."""
SLURM_BOUND = 5.0
"""Seconds to wait for Slurm's answer."""
SLURM_AGAIN = 30.0
"""Seconds between two queries to Slurm with --watch."""


class StatusPoller:
    """Polls the state of one job. `files_bound`: seconds. Slurm is asked if its commands are in PATH."""

    def __init__(self, search: RunSearch, files_bound: float = FILES_BOUND) -> None:
        self._search = search
        self._bound = files_bound
        self._reading: Background[Files] | None = None
        self._files = Files()
        self._hangs = ""
        self._slurm: Slurm | None = None
        self._slurm_note = ""
        self._asked_at = float("-inf")
        self._placed, self._placed_at = False, float("-inf")

    def now(self) -> JobStatus:
        """Return the state, after waiting within bounds for a snapshot that looks stale."""
        return self._seen(statuses.read_patiently, self._bound)

    def again(self) -> JobStatus:
        """Return the state without waiting, for --watch: the former call's snapshot shows whether this one is new."""
        former = self._files
        return self._seen(lambda folder: statuses.with_skew(statuses.read(folder), former, time.time()), AGAIN_BOUND)

    def _seen(self, read: Callable[[Path], Files], bound: float) -> JobStatus:
        files = self._read_in_time(read, bound)
        if files.folder is None and not files.problems and self._search_by_slurm():
            files = self._read_in_time(read, bound)
        stands = files.snapshot is None or statuses.is_old(files, time.time())
        if stands if files.verdict is None else statuses.is_in_doubt(files, time.time()):
            self._ask_slurm(files)
        else:
            self._slurm, self._slurm_note = None, ""
        asked = "" if self._search.wanted is None else str(self._search.wanted)
        seen = statuses.judge(asked, files, self._slurm, time.time())
        notes = [*seen.notes, *([self._slurm_note] if self._slurm_note else [])]
        if seen.state in (RunState.NONE, RunState.PENDING) and not files.problems:
            notes.append(f"no run of it in {self._search.shown}; --config or --run-dir say where else")
        return replace(seen, notes=tuple(notes))

    def _read_in_time(self, read: Callable[[Path], Files], bound: float) -> Files:
        # A reader that hangs is waited for again: each is a thread, and stays as long as the file system hangs.
        self._reading = self._reading or Background("run_dir", lambda: self._read(read))
        try:
            self._files = self._reading.result(bound)
        except Hangs:
            return replace(self._files, problems=(f"run_dir does not answer within {bound:g} s: {self._search.shown}",))
        self._reading = None
        return self._files

    def _read(self, read: Callable[[Path], Files]) -> Files:
        # A search for any job stays with the run that it found first: of two, each would be the newest in turn.
        folder = self._files.folder if self._search.wanted is None else None
        try:
            folder = folder or find.folder(self._search)
        except OSError as error:
            return Files(problems=(str(error),))
        return Files() if folder is None else read(folder)

    def _search_by_slurm(self) -> bool:
        """Ask Slurm, seldom, until it has answered; return whether it has named new places."""
        if self._placed or time.monotonic() - self._placed_at < SLURM_AGAIN:
            return False
        self._placed_at, former = time.monotonic(), self._search.places
        try:
            self._search = find.by_slurm(self._search, os.environ)
        except SlurmError:
            return False  # the query for the job's state reports the error
        self._placed = True
        return self._search.places != former

    def _ask_slurm(self, files: Files) -> None:
        wanted = self._search.wanted if files.folder is None else runs.parse(files.folder.name)
        if wanted is None or wanted.job_id >= runs.SLURM_IDS_END or time.monotonic() - self._asked_at < SLURM_AGAIN:
            return
        self._asked_at = time.monotonic()
        try:
            self._slurm, self._slurm_note = _ask(wanted.job_id), ""
        except NoCommands:
            self._slurm, self._slurm_note = None, ""
        except SlurmError as error:
            self._slurm, self._slurm_note = None, f"Slurm does not answer: {one_line(str(error), 200)}"


def _ask(job_id: int) -> Slurm:
    """Raises SlurmError."""
    found = open_client(os.environ).job(job_id, timeout=SLURM_BOUND)
    if found is None:
        return Slurm("")
    state = job_states.find(found.state)
    completing = "COMPLETING" in found.flags
    over, pending = state.over and not completing, state.means is Meaning.PENDING
    return Slurm(found.shown, found.reason, over, pending, found.restart_count)

"""What `status` can find out about a job: from its run's files, and from Slurm where they do not tell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ft_slurm import job_states
from ft_slurm.client import open_client
from ft_slurm.errors import NoCommands, SlurmError
from ft_slurm.job_states import Means
from ft_supervisor.core.words import one_line
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import find, runs
from ft_supervisor.run_folder.find import Search
from ft_supervisor.status import judgement as statuses
from ft_supervisor.status.judgement import Files, JobState, JobStatus, Slurm

FILES_BOUND = 12.0
"""Seconds that run_dir gets, with the patience for the next snapshot, before nobody waits for it any more."""
AGAIN_BOUND = 2.0
"""The same for one who looks every second."""
SLURM_BOUND = 5.0
"""Seconds that Slurm gets for its answer."""
SLURM_AGAIN = 30.0
"""Seconds between two questions to Slurm of one who watches."""


class StatusPoller:
    """At one job. `environ`: PATH says whether there is a Slurm to ask."""

    def __init__(self, search: Search, files_bound: float = FILES_BOUND) -> None:
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
        """Whatever it takes to be sure, within bounds."""
        return self._seen(statuses.read_patiently, self._bound)

    def again(self) -> JobStatus:
        """The same for one who looks every second, and remembers."""
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
        if seen.state in (JobState.NONE, JobState.PENDING) and not files.problems:
            notes.append(f"no run of it in {self._search.shown}; --config or --run-dir say where else")
        return replace(seen, notes=tuple(notes))

    def _read_in_time(self, read: Callable[[Path], Files], bound: float) -> Files:
        # One that hangs is waited for again: each is a thread, and stays as long as the file system hangs.
        self._reading = self._reading or Background("run_dir", lambda: self._read(read))
        try:
            self._files = self._reading.result(bound)
        except Hangs:
            return replace(self._files, problems=(f"run_dir does not answer within {bound:g} s: {self._search.shown}",))
        self._reading = None
        return self._files

    def _read(self, read: Callable[[Path], Files]) -> Files:
        # Of any job the newest is meant: that of the first look, as two that run take turns in being it.
        folder = self._files.folder if self._search.wanted is None else None
        try:
            folder = folder or find.folder(self._search)
        except OSError as error:
            return Files(problems=(str(error),))
        return Files() if folder is None else read(folder)

    def _search_by_slurm(self) -> bool:
        """Whether Slurm has named places that were not looked at yet. It is asked until it has answered, and seldom."""
        if self._placed or time.monotonic() - self._placed_at < SLURM_AGAIN:
            return False
        self._placed_at, former = time.monotonic(), self._search.places
        try:
            self._search = find.by_slurm(self._search, os.environ)
        except SlurmError:
            return False  # the question about the job's state tells of it
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
    over, pending = state.over and not completing, state.means is Means.PENDING
    return Slurm(found.shown, found.reason, over, pending, found.restart_count)

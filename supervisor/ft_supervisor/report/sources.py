"""Collects the data of a report from the runs' folders and from Slurm.

All waits are bounded: a file system may hang, and sacct may be slow. Missing data gives lines for people, and no
exception. If a file system hangs, the caller should end the process by os._exit, as a thread still waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from ft_slurm.client import open_client
from ft_slurm.errors import NoCommands, SlurmError
from ft_slurm.records import AccountingRecord
from ft_supervisor.history import read_run
from ft_supervisor.history.model import History
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import runs
from ft_supervisor.run_folder.runs import Wanted

LOOK_BOUND = 30.0
"""Seconds to wait for the folders: a file system that hangs does so here."""
FILES_BOUND = 300.0
"""Seconds to wait for all journals of a job: a gigabyte from a slow file system takes that long."""
SLURM_BOUND = 20.0
T = TypeVar("T")


@dataclass
class ReportSources:
    """The collected data. `histories`: the job's runs, the newest first. `hangs`: a thread still waits for a file
    system."""

    histories: list[History] = field(default_factory=list)
    records: tuple[AccountingRecord, ...] = ()
    notes: list[str] = field(default_factory=list)
    hangs: bool = False


def look_for_runs(places: Sequence[Path], wanted: Wanted, found: ReportSources, bound: float = FILES_BOUND) -> None:
    """Read the runs in the first place that has any, and add them to `found`. `bound`: seconds."""
    folders = _bounded(partial(_folders, places, wanted), places[0], min(bound, LOOK_BOUND), found)
    if folders:
        found.histories += _bounded(partial(_read, folders), folders[0].parent, bound, found)


def _bounded(work: Callable[[], tuple[list[T], list[str]]], place: Path, bound: float, found: ReportSources) -> list[T]:
    """Return the values from `work`, and add its notes to `found`. `bound`: seconds."""
    try:
        values, notes = Background("run_dir", work).result(bound)
    except Hangs:
        found.hangs = True
        found.notes.append(f"run_dir: {place} does not answer within {bound:g} s")
        return []
    found.notes += notes
    return values


def _folders(places: Sequence[Path], wanted: Wanted) -> tuple[list[Path], list[str]]:
    notes: list[str] = []
    for place in dict.fromkeys(places):
        try:
            if folders := list(runs.folders(place, wanted)):
                return folders, notes
        except NotADirectoryError:
            pass
        except OSError as error:
            notes.append(f"run_dir: {error.strerror}: {error.filename or place}")
    return [], notes


def _read(folders: Sequence[Path]) -> tuple[list[History], list[str]]:
    histories, notes = [], []
    for folder in folders:
        try:
            histories.append(read_run.read(folder))
        except OSError as error:
            notes.append(f"run_dir: {error.strerror}: {error.filename or folder}")
    return histories, notes


def ask_slurm(job_id: int, environ: Mapping[str, str], found: ReportSources, timeout: float = SLURM_BOUND) -> None:
    """Add the job's records that sacct shows to this user to `found`. `timeout`: seconds."""
    if job_id >= runs.SLURM_IDS_END:
        return
    try:
        found.records = open_client(environ).accounting(job_id, timeout=timeout)
    except NoCommands:
        found.notes.append("Slurm's accounting: neither its commands nor pyslurm are here")
        return
    except SlurmError as error:
        found.notes.append(f"Slurm's accounting: {error}")
        return
    if not found.records:
        found.notes.append(f"Slurm's accounting: no record of job {job_id} (yet), or none that you may see")

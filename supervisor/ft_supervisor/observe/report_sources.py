"""What is left of a job, from its runs' folders and from Slurm. Bounded: a file system may hang, and sacct may be slow.

What could not be had is told in lines for people; nothing here raises for it. Whoever was told of a file system that
hangs had better leave by os._exit, as a thread of ours still waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ft_slurm.client import open_client
from ft_slurm.errors import NoCommands, SlurmError
from ft_slurm.records import AccountingRecord
from ft_supervisor.observe import history_read, runs
from ft_supervisor.observe.background import Background, Hangs
from ft_supervisor.observe.history import History
from ft_supervisor.observe.runs import Wanted

FILES_BOUND = 300.0
"""Seconds for reading all journals of a job: a gigabyte from a slow file system takes as long."""
SLURM_BOUND = 20.0


@dataclass
class Found:
    """`histories`: of the job's runs, the newest first. `hangs`: a thread is left behind."""

    histories: list[History] = field(default_factory=list)
    records: tuple[AccountingRecord, ...] = ()
    notes: list[str] = field(default_factory=list)
    hangs: bool = False


def look_for_runs(places: Sequence[Path], wanted: Wanted, found: Found, bound: float = FILES_BOUND) -> None:
    """Read the runs in the first of the places that has any."""
    work = Background("run_dir", partial(_read, places, wanted))
    try:
        histories, notes = work.result(bound)
    except Hangs:
        found.hangs = True
        found.notes.append(f"run_dir: {places[0]} does not answer within {bound:g} s")
        return
    found.histories += histories
    found.notes += notes


def _read(places: Sequence[Path], wanted: Wanted) -> tuple[list[History], list[str]]:
    notes = []
    for place in dict.fromkeys(places):
        histories = []
        try:
            for folder in runs.folders(place, wanted):
                histories.append(history_read.read(folder))
        except NotADirectoryError:
            pass
        except OSError as error:
            notes.append(f"run_dir: {error.strerror}: {error.filename or place}")
        if histories:
            return histories, notes
    return [], notes


def ask_slurm(job_id: int, environ: Mapping[str, str], found: Found, timeout: float = SLURM_BOUND) -> None:
    """All of the job's records, as far as sacct shows them to whoever asks."""
    if job_id >= runs.SLURMS:
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

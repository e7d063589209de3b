"""Asks Slurm for a job's working folder and batch script, with which its files are found."""

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ft_slurm import command
from ft_slurm.command import remaining
from ft_slurm.errors import NoCommands, Unanswered

_SETTINGS = ("SLURM_CLUSTERS", "SACCT_", "SCONTROL_")
"""Variables that a user sets and that would change the question."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job's folder and script. `job_id` is Slurm's own number, of an array task too. `work_dir` is the job's working
    folder, and `script` its batch script; "" where Slurm does not have them (any more)."""

    job_id: int
    work_dir: str
    script: str


def find(name: str, environ: Mapping[str, str], timeout: float) -> JobFolder | None:
    """Return the newest record of the job, or array task (`123_4`), of this name; None when Slurm has none.

    Asks slurmctld first, which has the script as well but forgets a job MinJobAge (300 s) after its end; then the
    accounting. Raises NoCommands where neither scontrol nor sacct is in PATH, and Unanswered, with one line, after at
    most `timeout` seconds and a little.
    """
    path, end = environ.get("PATH"), time.monotonic() + timeout
    clean = {key: value for key, value in environ.items() if not key.startswith(_SETTINGS)}
    scontrol, sacct = shutil.which("scontrol", path=path), shutil.which("sacct", path=path)
    if scontrol is None and sacct is None:
        raise NoCommands("there is neither scontrol nor sacct in PATH")
    if scontrol is not None and (found := _of_slurmctld(scontrol, name, clean, end)) is not None:
        return found
    return _of_sacct(sacct, name, clean, end) if sacct is not None else None


def _of_slurmctld(scontrol: str, name: str, environ: Mapping[str, str], end: float) -> JobFolder | None:
    """Return slurmctld's record. None also while slurmctld is away: the accounting may answer."""
    try:
        done = command.run([scontrol, "show", "job", name], remaining(end), environ)
        # Of several records of one name, as of a requeued job, the last one is the newest.
        numbers = re.findall(r"^JobId=([0-9]{1,18})\b", done.stdout, re.MULTILINE)
        folders = re.findall(r"^   WorkDir=(.*)$", done.stdout, re.MULTILINE)
        if not numbers or len(numbers) != len(folders):
            return None
        script = command.run([scontrol, "write", "batch_script", numbers[-1], "-"], remaining(end), environ)
    except Unanswered:
        return None
    return JobFolder(int(numbers[-1]), folders[-1], script.stdout if script.stdout.startswith("#!") else "")


def _of_sacct(sacct: str, name: str, environ: Mapping[str, str], end: float) -> JobFolder | None:
    line = [sacct, "--allocations", f"--jobs={name}", "--noheader", "--parsable2", "--format=JobIDRaw,WorkDir"]
    done = command.run(line, remaining(end), environ)
    if done.code:
        raise Unanswered(f"sacct: {done.problem}")
    for row in reversed(done.stdout.splitlines()):
        number, separator, folder = row.partition("|")
        if separator and re.fullmatch("[0-9]{1,18}", number):
            return JobFolder(int(number), folder, "")
    return None

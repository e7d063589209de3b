"""Where a job was submitted, by Slurm's accounting: a report looks for the job's files there."""

import shutil
from collections.abc import Mapping

from ft_slurm import command
from ft_slurm.errors import NoCommands, Unanswered

_SETTINGS = ("SLURM_CLUSTERS", "SACCT_")
"""A user's own, which would make it another question."""


def work_dir(job_id: int, environ: Mapping[str, str], timeout: float) -> str:
    """The working folder of the job's newest record; "" when sacct does not know it.

    Raises NoCommands and Unanswered, with one line, the latter after at most `timeout` seconds and a little.
    """
    sacct = shutil.which("sacct", path=environ.get("PATH"))
    if sacct is None:
        raise NoCommands("there is no sacct in PATH")
    clean = {key: value for key, value in environ.items() if not key.startswith(_SETTINGS)}
    line = [sacct, "--allocations", f"--jobs={job_id}", "--noheader", "--parsable2", "--format=WorkDir"]
    done = command.run(line, timeout, clean)
    if done.code:
        raise Unanswered(f"sacct: {done.problem}")
    found = done.stdout.splitlines()
    return found[-1] if found else ""

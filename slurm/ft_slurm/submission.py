"""Submits a batch script with sbatch."""

import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ft_slurm import command
from ft_slurm.errors import NoCommands, Refused, Unanswered

TIMEOUT = 150.0
"""Seconds. sbatch itself tries for up to two minutes when slurmctld has no time for it (sbatch.c, MAX_RETRIES)."""
_PASSES = ("Unable to contact", "timed out", "temporarily", "Zero Bytes", "connect failure")
"""Parts of sbatch's errors while slurmctld is away or busy. A later attempt may succeed."""
_PARSABLE = re.compile(r"^([0-9]{1,18})(?:;(\S+))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of a submission. `job_id` None: sbatch succeeded without making a job, as with --test-only. `said`:
    what else it printed, for people."""

    job_id: int | None
    cluster: str | None
    said: str


def line(options: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return sbatch's command line that reads a script from its stdin. Raises NoCommands."""
    sbatch = shutil.which("sbatch", path=environ.get("PATH"))
    if sbatch is None:
        raise NoCommands("there is no sbatch in PATH")
    # A script on stdin needs no file, which would stay behind, or change before sbatch reads it.
    return [sbatch, "--parsable", *options]


def submit(script: bytes, options: Sequence[str], environ: Mapping[str, str], *, timeout: float = TIMEOUT) -> Submitted:
    """Submit the script. The job gets this environment, unless an --export option changes that.

    Raises NoCommands; Refused, with all that sbatch printed; Unanswered when Slurm did not answer: the job may then
    have been submitted all the same, unless the message contains that sbatch itself gave up.
    """
    words = line(options, environ)
    with tempfile.TemporaryFile() as file:
        file.write(script)
        file.seek(0)
        done = command.run(words, timeout, environ, file)
    said = "\n".join(filter(None, (done.stderr.strip(), _PARSABLE.sub("", done.stdout).strip())))
    if done.code:
        problem = f"{shlex.join(['sbatch', *words[1:]])}: {said or done.problem}"
        raise (Unanswered if any(each in said for each in _PASSES) else Refused)(problem)
    found = _PARSABLE.search(done.stdout)
    return Submitted(int(found[1]) if found else None, found[2] if found else None, said)

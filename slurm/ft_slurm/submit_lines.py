"""Asks how a job and its steps were submitted: sacct's SubmitLine (since 21.08), and the batch script as Slurm keeps
it.

slurmctld does not show whether a job survives the death of a node. These lines do, except for SBATCH_NO_KILL in the
environment. Each question raises NoCommands, or Unanswered.
"""

import re
import shutil
from collections.abc import Mapping

from ft_slurm import command
from ft_slurm.cli_client import for_questions
from ft_slurm.errors import NoCommands, Unanswered

_SEPARATOR = "\x1f"
_NO_KILL = re.compile(r"(?:^|\s)(?:--no-k(?:i|il|ill|ill=set)?|-k)(?=\s|$)")
_KEPT = re.compile(r"(?:^|\s)--kill-on-bad-exit=0(?=\s|$)")
_WAITS = re.compile(r"(?:^|\s)--wait=0(?=\s|$)")


def lines(job_id: int, environ: Mapping[str, str], timeout: float) -> dict[str, str]:
    """Return sacct's SubmitLine by step, with the job's own under ""; {} while sacct has nothing of the job yet."""
    sacct = _program("sacct", environ)
    fields = ["--format=JobIDRaw,SubmitLine", f"--delimiter={_SEPARATOR}"]
    words = [sacct, "--noheader", "--parsable2", f"--jobs={job_id}", *fields]
    done = command.run(words, timeout, for_questions(environ))
    if done.code:
        raise Unanswered(f"sacct: {done.problem}")
    found: dict[str, str] = {}
    for row in done.stdout.splitlines():
        name, separator, line = row.partition(_SEPARATOR)
        number, _, step = name.partition(".")
        if separator and number == str(job_id):
            found[step] = line
    return found


def batch_script(job_id: int, environ: Mapping[str, str], timeout: float) -> str:
    """Return the batch script's #SBATCH options as one line of words, "" where there are none."""
    words = [_program("scontrol", environ), "write", "batch_script", str(job_id), "-"]
    done = command.run(words, timeout, for_questions(environ))
    if done.code or not done.stdout.startswith("#!"):
        raise Unanswered(f"scontrol write batch_script: {done.problem}")
    return directives(done.stdout)


def directives(script: str) -> str:
    """Return the words behind #SBATCH before the script's first command."""
    found = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            found.append(line.removeprefix("#SBATCH").split(" #")[0].strip())
        elif line.strip() and not line.startswith("#"):
            break
    return " ".join(found)


def keeps_nodes(line: str) -> bool:
    """Return whether the line has --no-kill, in one of its forms."""
    return bool(_NO_KILL.search(line))


def outlives_tasks(line: str) -> bool:
    """Return whether srun goes on when a task has failed or ended."""
    return bool(_KEPT.search(line) and _WAITS.search(line))


def _program(name: str, environ: Mapping[str, str]) -> str:
    path = shutil.which(name, path=environ.get("PATH"))
    if path is None:
        raise NoCommands(f"there is no {name} in PATH")
    return path

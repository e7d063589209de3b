"""`ft-supervisor verdict`: how did a job end?"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import typer

from ft_slurm.errors import SlurmError
from ft_supervisor.cli.errors import complain, guarded
from ft_supervisor.cli.output import put
from ft_supervisor.core.protocol.model import INTERRUPTED, Outcome, Verdict
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import find, ownfolder, verdict_file
from ft_supervisor.run_folder.verdict_file import BadVerdictFile

FILES_BOUND = 60.0
"""Seconds for run_dir to answer: a batch script ends with the answer, and is better late than wrong."""


def verdict(
    job: find.JobId = None,
    config: find.RunConfig = None,
    run_dir: find.RunDir = None,
) -> None:
    """Prints how a job ended, and exits with its code.

    The code is 75 when there is no verdict (yet).

    Of several runs of a job (srun called twice, or the job requeued) the newest counts. A file with the
    verdict's name that is no verdict counts as a failure, 1. A run_dir that may not be read is 2; one that does not
    answer is 75.

    \b
    Examples:
      ft-supervisor verdict --config job.yaml   in a batch script, after srun
      ft-supervisor verdict 1234                in any folder
      ft-supervisor verdict 1234 --run-dir ft-runs/1234
    """
    raise typer.Exit(guarded(lambda: _run(job, config, run_dir)))


def _run(job: str | None, config: Path | None, run_dir: Path | None) -> int:
    job = job or os.environ.get("SLURM_JOB_ID")
    if not job:
        return complain("which job? $SLURM_JOB_ID is not set")
    try:
        search = find.search(job, config, run_dir, os.environ)
        found = Background("run_dir", lambda: _read(search)).result(FILES_BOUND)
    except Hangs:
        complain(f"run_dir does not answer within {FILES_BOUND:g} s: {search.shown}")
        return INTERRUPTED
    except (find.WrongUse, OSError) as error:
        return complain(error)
    said = f"no verdict of job {job} in {search.shown}" if found is None else f"{found.outcome}: {found.reason}"
    try:
        put(f"{said}\n")
    except OSError as error:  # the job's end stands, also where it cannot be printed
        complain(error)
    return INTERRUPTED if found is None else found.exit_code


def _read(search: find.RunSearch) -> Verdict | None:
    """Return the newest run's verdict. Raises OSError; may hang."""
    folder = find.folder(search)
    if folder is None:
        with suppress(SlurmError):  # no error: there may be no Slurm
            folder = find.folder(find.by_slurm(search, os.environ))
    try:
        if folder and "SLURM_JOB_ID" in os.environ:  # a batch script ends with the code that is found
            ownfolder.check(folder)
        return verdict_file.read(folder, folder.name) if folder else None
    except BadVerdictFile as error:
        return Verdict(Outcome.FAILED, str(error))  # as in the store: anything but a verdict is never success

"""Finds the running job that `fault` and `stacks` are for."""

from __future__ import annotations

import os
from pathlib import Path

from ft_supervisor.fault.messages import FaultError, NotThere, Wrong
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import find, runs
from ft_supervisor.run_folder.runs import Wanted

FILES_BOUND = 10.0
"""Seconds for run_dir to answer."""


def wanted(job: str | None, config: Path | None, run_dir: Path | None, by: str) -> Wanted:
    """Return the job that the user names, or that of the run to which --config or --run-dir leads. `by`: how to name
    one, for the message if nothing was said. Raises FaultError, ConfigError."""
    if not (job or os.environ.get("SLURM_JOB_ID") or config or run_dir):
        raise Wrong(f"which job? say it by {by}, or by --run-dir or --config")
    try:
        search = find.search(job, config, run_dir, os.environ)
        if search.wanted is not None and not search.only:
            return search.wanted
        folder = Background("run_dir", lambda: find.folder(search)).result(FILES_BOUND)
    except find.WrongUse as error:
        raise Wrong(str(error)) from None
    except (OSError, Hangs) as error:
        raise FaultError(f"run_dir: {error}") from None
    found = None if folder is None else runs.parse(folder.name)
    if found is None:
        raise NotThere(f"no run{f' of job {job}' if job else ''} in {search.shown}")
    return found

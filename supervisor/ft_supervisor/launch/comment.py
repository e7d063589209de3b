"""Lets `launch` write the job's comment when the coordinator's node could not: it is in a container without Slurm's
commands, or died too soon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ft_slurm.errors import JobOver, SlurmError
from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.core.protocol.summary import Summary, head, line
from ft_supervisor.daemon import accounting
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.run_folder import verdict_file

FILE_BOUND = 2.0
"""Seconds to read the verdict's file once more."""


def write(job_id: int, run_id: str, verdict: Verdict, folder: Path, environ: Mapping[str, str]) -> str:
    """Write the end of this run into the job's comment, unless the comment has it already. `folder` is the run's.
    Returns the problem, in one line; "" for none.

    Takes at most FILE_BOUND and a second more than accounting.BOUND. A job that Slurm has ended (scancel, the time
    limit) keeps its former comment, and that is not counted as a problem.
    """
    text = _summary(folder, verdict) or line(Summary(), verdict, run_id)
    try:
        accounting.write(job_id, text, head(verdict, run_id), environ)
    except JobOver:
        pass
    except (SlurmError, Hangs) as error:
        return f"the job's comment does not tell how it ended: {error}"
    return ""


def _summary(folder: Path, verdict: Verdict) -> str:
    """Return the line that the coordinator has put into the verdict's file; "" without one."""
    try:
        content = Background("the verdict's summary", lambda: verdict_file.read_all(folder)).result(FILE_BOUND)
    except (OSError, verdict_file.BadVerdictFile, Hangs):
        return ""  # launch.watch has already reported such a file
    return content.summary if content is not None and content.verdict == verdict else ""

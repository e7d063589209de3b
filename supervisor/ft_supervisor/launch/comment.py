"""The job's comment by `launch`, where the coordinator's node could not write it: it is in a container without Slurm's
commands, or died too soon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ft_slurm.errors import JobOver, SlurmError
from ft_supervisor.core.model import Verdict
from ft_supervisor.core.summary import Summary, head, line
from ft_supervisor.daemon import accounting
from ft_supervisor.observe import verdict_file
from ft_supervisor.observe.background import Background, Hangs

FILE_BOUND = 2.0
"""Seconds to read the verdict's file once more."""


def write(job_id: int, run_id: str, verdict: Verdict, folder: Path, environ: Mapping[str, str]) -> str:
    """Have the job's comment tell the end of this run, unless it does; `folder` is the run's. What went wrong, in one
    line; empty for nothing.

    Bounded by FILE_BOUND and accounting.BOUND. A job that Slurm has ended (scancel, the time limit) keeps the comment
    that it had, which is nothing to complain of.
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
    """The line that the coordinator has put into the verdict's file; empty without one."""
    try:
        content = Background("the verdict's summary", lambda: verdict_file.read_all(folder)).result(FILE_BOUND)
    except (OSError, verdict_file.BadVerdictFile, Hangs):
        return ""  # whoever needs that file has said so already
    return content.summary if content is not None and content.verdict == verdict else ""

"""Lists the runs that are known here: those in the user's index, and those below the current folder. Asks no Slurm.

Of each job only the newest run counts. Functions may hang for as long as the file systems do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.protocol import summary
from ft_supervisor.core.protocol.model import Outcome
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.words import one_line
from ft_supervisor.run_folder import find, run_index, runs, verdict_file
from ft_supervisor.run_folder.runs import Wanted
from ft_supervisor.run_folder.snapshot import NodeRole
from ft_supervisor.status import judgement

NOT_BEGUN = "not begun"
"""The state of a job that was submitted, and has no run yet."""
MOST_REASON = 60
"""Characters of the reason of a job that did not succeed."""


@dataclass(frozen=True)
class KnownRun:
    """One job. `job`: its id, or the array task's; `local`: it is of `ft-supervisor local`; `name`: the
    configuration's, "" if no file has it; `state`: the verdict's outcome, or running, stale, unknown, NOT_BEGUN; `at`:
    when it ended, was last seen or was submitted, in seconds since the epoch; `active` and `nodes`: how many nodes
    train or trained, and how many the job has, None if no file has it; `summary`: the verdict's line."""

    job: str
    local: bool
    name: str
    state: str
    at: float
    active: int | None = None
    nodes: int | None = None
    summary: str = ""
    folder: Path | None = None


def collect(environ: Mapping[str, str], most: int) -> list[KnownRun]:
    """Return the newest `most` jobs, newest first. Raises OSError if the index or the current folder cannot be read."""
    found: dict[tuple[int, Path], KnownRun] = {}
    for named in run_index.newest(environ, most):
        job_id, run_dir = named.entry.job_id, named.entry.run_dir
        found[job_id, run_dir] = _judged(named.name, job_id, named.cluster == run_index.LOCAL, run_dir, named.written)
    folders = find.any_run(find.here(environ))
    here = {(run.job_id, folder.parent) for folder in folders if (run := runs.parse(folder.name))}
    for job_id, run_dir in sorted(here - found.keys(), reverse=True)[:most]:
        found[job_id, run_dir] = _judged(str(job_id), job_id, job_id >= runs.SLURM_IDS_END, run_dir, 0.0)
    return sorted(found.values(), key=lambda each: each.at, reverse=True)[:most]


def _judged(job: str, job_id: int, local: bool, run_dir: Path, noted: float) -> KnownRun:
    """Return the job, as the files of its newest run show it."""
    try:
        folder = next(runs.folders(run_dir, Wanted(job_id)), None)
    except OSError:
        return KnownRun(job, local, "", "unknown", noted)
    if folder is None:
        return KnownRun(job, local, "", NOT_BEGUN, noted)
    files = judgement.read(folder)
    shot, at, state = files.snapshot, max(noted, _changed(folder)), "unknown"
    if files.verdict is not None:
        state, at = files.verdict.outcome.value, files.ended or (shot.time if shot else at)
    elif shot is not None:
        state, at = ("stale" if judgement.is_old(files, time.time()) else "running"), shot.time
    if shot is None:
        return KnownRun(job, local, "", state, at, summary=_summary(folder), folder=folder)
    active = sum(len(parse_ranks(each.infra_ranks)) for each in shot.nodes if each.role is NodeRole.ACTIVE)
    return KnownRun(job, local, shot.job, state, at, active, len(shot.names), _summary(folder), folder)


def _summary(folder: Path) -> str:
    """Return the line about the run's end, without the outcome; of a failed run the reason, too."""
    try:
        content = verdict_file.read_all(folder)
    except (OSError, verdict_file.BadVerdictFile):
        return ""
    if content is None or content.run_id != folder.name:
        return ""
    rest = content.summary.removeprefix(summary.head(content.verdict, content.run_id)).lstrip(", ")
    reason = one_line(content.verdict.reason, MOST_REASON) if content.verdict.outcome is not Outcome.SUCCESS else ""
    return one_line(": ".join(filter(None, (rest, reason))))


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0

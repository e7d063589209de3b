"""Run ids, and the folders of a job's runs. Reads folders, which may hang (NFS)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.protocol.model import EXIT_CODES, Outcome

SLURM_IDS_END = 2**32
"""Slurm's job ids are below this, also in a federation, where the highest bits name the cluster. Those of `local` are
not."""
_WANTED = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,10})(?:\.([0-9]{1,10}))?)?")


@dataclass(frozen=True)
class Wanted:
    """The runs of a job; None for `step_id` or `restart_count` means any."""

    job_id: int
    step_id: int | None = None
    restart_count: int | None = None

    def __str__(self) -> str:
        parts = (self.job_id, self.step_id, self.restart_count)
        return ".".join(str(part) for part in parts if part is not None)


def parse(text: str) -> Wanted | None:
    """Parse JOB, JOB.STEP or JOB.STEP.RESTART (a run id); return None for anything else."""
    match = _WANTED.fullmatch(text)
    return Wanted(*(int(part) if part else None for part in match.groups())) if match else None  # type: ignore[arg-type]


def run_dir(template: str, submit_dir: Path, job_id: int) -> Path:
    """Return the configuration's run_dir for this job; it is absolute if `submit_dir` is."""
    return submit_dir / template.replace("{job_id}", str(job_id))


def what_next(job_id: int, code: int) -> str:
    """Return the commands that show how a job went that has ended with this exit code."""
    failed = code not in (EXIT_CODES[Outcome.SUCCESS], EXIT_CODES[Outcome.CANCELLED])
    more = f"; output of failed workers: ft-supervisor logs {job_id} --failed" if failed else ""
    return f"report: ft-supervisor report {job_id}{more}"


def folders(parent: Path, wanted: Wanted | None) -> Iterator[Path]:
    """Yield the run folders in `parent`, newest first: by restart, then by step. Yields nothing if `parent` is missing.
    `wanted` None means runs of any job.

    Raises OSError.
    """
    found: list[tuple[int, int, Path]] = []
    try:
        for folder in parent.iterdir():
            run = parse(folder.name)
            if run is None or run.step_id is None or run.restart_count is None:
                continue
            if wanted is None or _is(run, wanted):
                found.append((run.restart_count, run.step_id, folder))
    except FileNotFoundError:
        return
    yield from (folder for _, _, folder in sorted(found, reverse=True))


def _is(run: Wanted, wanted: Wanted) -> bool:
    return (
        run.job_id == wanted.job_id
        and wanted.step_id in (None, run.step_id)
        and wanted.restart_count in (None, run.restart_count)
    )

"""Reads and writes the file which says that a job has its verdict and still runs in Slurm.

The process that ends the job in Slurm writes the file, beside the verdict's, before it waits for anything, and removes
it before it ends the job. So the file is right if that process is killed. Its log is often lost, because srun has died
with the batch host.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.words import one_line
from ft_supervisor.process import atomic
from ft_supervisor.run_folder import ownfolder, runs, smallfile

NAME = "left_running.json"
MAX_BYTES = 16 * 1024
USUAL_END = 120.0
"""Seconds from a verdict to the job's end in Slurm and its accounting, with a generous margin."""


@dataclass(frozen=True)
class LeftRunning:
    """The contents of the file. `why`: what the job's end in Slurm waits for, or why Slurm cannot end it. `time`: when
    the file was written; `until`: when the waiting ends, None if no process waits any more; both in seconds since the
    epoch."""

    job_id: int
    why: str
    time: float
    until: float | None = None

    @property
    def ends_it(self) -> str:
        """The command that ends the job. It is never read from the file, in which others could put a command of their
        own."""
        return f"scancel {self.job_id}"

    def sentence(self, wall: float) -> str:
        """Return a sentence for people, at `wall` seconds since the epoch."""
        waits = self.until is not None and wall < self.until
        ends = f"it ends there within {self.until - wall:.0f} s, or by" if waits and self.until else "it ends by"
        return f"the job still runs in Slurm: {self.why}; {ends} `{self.ends_it}`"


def by_slurm(job_id: int, state: str, ended: float, wall: float) -> LeftRunning | None:
    """Return what Slurm's `state` of a running job means after a verdict at `ended`; None while that is a usual end.
    `ended`, `wall` (now): seconds since the epoch."""
    if wall - ended < USUAL_END:
        return None
    why = f"it is {state} {wall - ended:.0f} s after its verdict, unless its batch script has more to do"
    return LeftRunning(job_id, why, ended)


class BadFile(Exception):
    """The file exists, but its contents make no sense. The message is one line."""


def write(folder: Path, left: LeftRunning) -> None:
    """Write the file, whole or not at all. Raises OSError. May hang for as long as the file system does."""
    content = {
        "job": left.job_id,
        "why": one_line(left.why),
        "ends_it": left.ends_it,
        "time": left.time,
        "until": left.until,
    }
    atomic.replace(ownfolder.make(folder) / NAME, json.dumps(content).encode() + b"\n")


def document(left: LeftRunning) -> dict[str, object]:
    """Return the contents as JSON for programs."""
    return {"why": left.why, "ends_it": left.ends_it, "since": left.time, "until": left.until}


def remove(folder: Path) -> None:
    """Remove the file. Raises OSError other than "no such file". May hang."""
    (folder / NAME).unlink(missing_ok=True)


def read(folder: Path) -> LeftRunning | None:
    """Return the contents of the file in this run's folder; None without one. Raises BadFile, OSError. May hang."""
    path, run = folder / NAME, runs.parse(folder.name)
    try:
        content = json.loads(smallfile.read(path, MAX_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError, smallfile.NotSmall) as error:
        raise BadFile(f"{path}: {error.problem if isinstance(error, smallfile.NotSmall) else 'not JSON'}") from None
    if not isinstance(content, dict) or run is None or content.get("job") != run.job_id:
        raise BadFile(f"{path}: not of this job")
    why, at, until = content.get("why"), content.get("time"), content.get("until")
    try:
        if not isinstance(why, str):
            raise ValueError(why)
        return LeftRunning(run.job_id, one_line(why), _time(at), None if until is None else _time(until))
    except ValueError:
        raise BadFile(f"{path}: 'why', 'time' or 'until' is missing or something else") from None


def _time(value: object) -> float:
    """Return a number that can be a time. Raises ValueError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError(value)
    return float(value)

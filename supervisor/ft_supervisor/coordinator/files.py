"""Reads and writes the run's verdict file and step file in threads: a file system may hang, and the main loop does not
wait for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from ft_supervisor.core.protocol.bounds import MOST
from ft_supervisor.core.protocol.events import StepRead, VerdictFileFound, VerdictWritten
from ft_supervisor.core.protocol.model import Job, Verdict
from ft_supervisor.core.protocol.summary import Summary, line
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import file_failed
from ft_supervisor.run_folder import verdict_file

STEP_BYTES = 4096
"""Bytes of the step file, at most: a larger file is not a step file."""


def write(job: Job, verdict: Verdict, summary: Summary, tell: Callable[[VerdictWritten], None]) -> Background[None]:
    """Begin to write the file. `tell` gets the verdict that the file then has: `verdict` also when it could not be
    written, which is logged as an error."""

    def work() -> None:
        held = verdict
        try:
            told, exit_code = line(summary, verdict, job.run_id), job.settings.accounting.exit_code
            folder = Path(job.run_folder)
            held = verdict_file.write(folder, verdict, job.run_id, job.nonce, told, exit_code=exit_code)
        finally:
            tell(VerdictWritten(held))

    return Background("verdict file", work, file_failed)


def read_step(job: Job, tell: Callable[[StepRead], None]) -> Background[None]:
    """Begin to read the job's step file. `tell` gets the first number in it; None if there is none, or one beyond
    bounds.MOST. An error is logged."""

    def work() -> None:
        step, age = None, None
        try:
            path = Path(job.settings.step_file)
            step = step_in(path)
            age = None if step is None else max(0.0, time.time() - path.stat().st_mtime)
        except FileNotFoundError:
            pass  # there is no checkpoint yet
        finally:
            tell(StepRead(step, age))

    return Background("the step of the newest checkpoint", work, file_failed)


def step_in(path: Path) -> int | None:
    """Return the first number in a step file; None if there is none, or one beyond bounds.MOST. Raises OSError."""
    with path.open("rb") as file:
        found = re.search(rb"[0-9]{1,18}", file.read(STEP_BYTES))
    return int(found[0]) if found and int(found[0]) <= MOST else None


def look(job: Job, tell: Callable[[VerdictFileFound], None]) -> Background[None]:
    """Begin to look for the verdict's file. `tell` gets its verdict, if there is one; an error is logged."""

    def work() -> None:
        if verdict := verdict_file.read_own(Path(job.run_folder), job.run_id, job.nonce):
            tell(VerdictFileFound(verdict))

    return Background("reading the verdict's file", work, file_failed)

"""The run's verdict file, in threads: the file system may hang, and decisions do not wait for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.bounds import MOST
from ft_supervisor.core.events import Ended, StepRead
from ft_supervisor.core.model import Job, Verdict
from ft_supervisor.core.summary import Summary, line
from ft_supervisor.observe import verdict_file
from ft_supervisor.observe.background import Background
from ft_supervisor.process.log import file_failed

STEP_BYTES = 4096
"""Of the step file: it is small, or none."""


@dataclass(frozen=True)
class Written:
    """The file was to hold `verdict`, and holds `held`; the same also when it could not be written."""

    verdict: Verdict
    held: Verdict


def write(job: Job, verdict: Verdict, summary: Summary, tell: Callable[[Written], None]) -> Background[None]:
    """Begin to write the file; Written is told when that is done, an error logged."""

    def work() -> None:
        held = verdict
        try:
            told, exit_code = line(summary, verdict, job.run_id), job.settings.accounting.exit_code
            folder = Path(job.run_folder)
            held = verdict_file.write(folder, verdict, job.run_id, job.nonce, told, exit_code=exit_code)
        finally:
            tell(Written(verdict, held))

    return Background("verdict file", work, file_failed)


def read_step(job: Job, tell: Callable[[StepRead], None]) -> Background[None]:
    """Begin to read the job's step file: StepRead is told what the first number in it is (None
    beyond bounds.MOST, too), an error logged."""

    def work() -> None:
        step = None
        try:
            with Path(job.settings.step_file).open("rb") as file:
                found = re.search(rb"[0-9]{1,18}", file.read(STEP_BYTES))
            step = int(found[0]) if found and int(found[0]) <= MOST else None
        except FileNotFoundError:
            pass  # there is no checkpoint yet
        finally:
            tell(StepRead(step))

    return Background("the step of the newest checkpoint", work, file_failed)


def look(job: Job, tell: Callable[[Ended], None]) -> Background[None]:
    """Begin to look for the file; Ended is told if it is there, an error logged."""

    def work() -> None:
        if verdict := verdict_file.read_own(Path(job.run_folder), job.run_id, job.nonce):
            tell(Ended(verdict))

    return Background("reading the verdict's file", work, file_failed)

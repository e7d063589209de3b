"""The run's verdict file, in threads: the file system may hang, and decisions do not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.core.events import Ended
from ft_supervisor.core.model import Job, Verdict
from ft_supervisor.observe import verdict_file
from ft_supervisor.observe.background import Background
from ft_supervisor.process.log import file_failed


@dataclass(frozen=True)
class Written:
    """The file was to hold `verdict`, and holds `held`; the same also when it could not be written."""

    verdict: Verdict
    held: Verdict


def write(job: Job, verdict: Verdict, tell: Callable[[Written], None]) -> Background[None]:
    """Begin to write the file; Written is told when that is done, an error logged."""

    def work() -> None:
        held = verdict
        try:
            held = verdict_file.write(Path(job.run_folder), verdict, job.run_id, job.nonce)
        finally:
            tell(Written(verdict, held))

    return Background("verdict file", work, file_failed)


def look(job: Job, tell: Callable[[Ended], None]) -> Background[None]:
    """Begin to look for the file; Ended is told if it is there, an error logged."""

    def work() -> None:
        if verdict := verdict_file.read(Path(job.run_folder), job.run_id, job.nonce):
            tell(Ended(verdict))

    return Background("reading the verdict's file", work, file_failed)

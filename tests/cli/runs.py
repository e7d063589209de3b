"""Runs as their jobs leave them: a folder with a snapshot, and with a verdict once the job has ended."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tests.status.test_status import put, shot

from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.run_folder import verdict_file

SUCCESS = Verdict(Outcome.SUCCESS, "all done")
BOUND = 60.0


def a_run(parent: Path, run_id: str, *, age: float = 0.0) -> Path:
    """Make a run whose snapshot is so old."""
    folder = parent / run_id
    folder.mkdir(parents=True)
    put(folder, replace(shot(), run_id=run_id, time=time.time() - age, interval=0.1))
    return folder


def end(folder: Path, verdict: Verdict = SUCCESS) -> None:
    verdict_file.write(folder, verdict, folder.name, "nonce")

"""Start jobs for tests, and end all that is left of them after each test."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes.faults import ENVIRON, words
from tests.processes.harness import BOUND, Job, StartJob


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartJob]:
    """Return start(nodes=, active=, ...), which starts a Job in a folder of its own."""
    started: list[Job] = []

    def begin(**settings: Any) -> Job:
        started.append(Job(tmp_path / f"job{len(started)}", **settings))
        return started[-1]

    yield begin
    for job in started:
        job.clean_up()


@pytest.fixture
def tool() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return tool(job, ...), which starts the command with its output in pipes; it is killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(job: Job, *rest: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(words(job, *rest), env=ENVIRON, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=BOUND)

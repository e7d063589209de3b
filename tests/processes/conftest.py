"""Start jobs for tests, and end all that is left of them after each test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes.harness import Job, StartJob


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

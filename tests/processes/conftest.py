"""A job that has ended, whatever the test made of it, when the test has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes.harness import Job, StartJob


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartJob]:
    """start(nodes=, active=, ...): a Job in a folder of its own."""
    started: list[Job] = []

    def begin(**settings: Any) -> Job:
        started.append(Job(tmp_path / f"job{len(started)}", **settings))
        return started[-1]

    yield begin
    for job in started:
        job.clean_up()

"""Start workers for tests, and end all that is left of them after each test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.fake_agent import Worker


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Return start(script, rank=, environment=), which starts a worker in a folder of its own."""
    workers: list[Worker] = []

    def begin(script: str, **settings: Any) -> Worker:
        workers.append(Worker(tmp_path / f"w{len(workers)}", script, **settings))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.clean_up()

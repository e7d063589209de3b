"""Start workers and ranks for tests, and end all that is left of them after each test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.fake_agent import Worker
from tests.worker.ranks import Rank


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


@pytest.fixture
def new_rank() -> Iterator[Callable[[], Rank]]:
    """Return a function that starts a rank's process; what still lives at the end is killed."""
    started: list[Rank] = []

    def start() -> Rank:
        started.append(Rank())
        return started[-1]

    yield start
    for rank in started:
        rank.kill()


@pytest.fixture
def store(tmp_path: Path) -> Callable[[], Path]:
    """Return a function that names a file for the store of one more cycle."""
    names = iter(range(1_000_000))
    return lambda: tmp_path / f"store-{next(names)}"

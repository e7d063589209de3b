"""Ranks that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.worker.ranks import Rank


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

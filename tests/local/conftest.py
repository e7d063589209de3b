"""Ends every process that the tests of `local` start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.local.support import Local, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a `local` in tmp_path; it has ended when the test has."""
    started: list[Local] = []

    def begin(*arguments: str, **environ: str) -> Local:
        started.append(Local(tmp_path, list(arguments), **environ))
        return started[-1]

    yield begin
    for local in started:
        local.end()

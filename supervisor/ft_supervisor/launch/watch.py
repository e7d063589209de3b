"""Looking for the verdict's file, in threads, because a folder may hang for as long as its file server does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from ft_supervisor.core.model import Verdict
from ft_supervisor.observe import runs, verdict_file

PERIOD = 0.2
"""Seconds between two looks into a folder."""


def watch(
    parent: Path,
    wanted: runs.Wanted,
    nonce: str,
    found: Callable[[Verdict, str], None],
    note: Callable[[str], None],
    sub: str = "",
) -> None:
    """From now on, until this process ends, look for a verdict with `nonce` in the wanted runs' folders of `parent`.

    `sub` is a folder below each run's. `found` is called once, with the run's id; `note` with each new problem; both in
    another thread.
    """
    threading.Thread(
        target=_look, args=(parent, wanted, nonce, found, note, sub), name=f"verdict in {parent}", daemon=True
    ).start()


def _look(
    parent: Path,
    wanted: runs.Wanted,
    nonce: str,
    found: Callable[[Verdict, str], None],
    note: Callable[[str], None],
    sub: str,
) -> None:
    told: set[str] = set()

    def problem(error: Exception) -> None:
        if str(error) not in told:
            told.add(str(error))
            note(str(error))

    while (seen := _see(parent, wanted, nonce, problem, sub)) is None:
        time.sleep(PERIOD)
    found(*seen)


def _see(
    parent: Path, wanted: runs.Wanted, nonce: str, problem: Callable[[Exception], None], sub: str
) -> tuple[Verdict, str] | None:
    """One look: what another run of the job has left, which may be anything, hides nothing of ours."""
    try:
        folders = list(runs.folders(parent, wanted))
    except Exception as error:
        problem(error)
        return None
    for folder in folders:
        try:
            if verdict := verdict_file.read(folder / sub, folder.name, nonce):
                return verdict, folder.name
        except Exception as error:  # whatever has the file's name; without this thread no verdict would be seen
            problem(error)
    return None

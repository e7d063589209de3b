"""Follows the run's status.json in a thread: its folder may hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from ft_supervisor.run_folder import smallfile, snapshot
from ft_supervisor.run_folder.smallfile import NotSmall
from ft_supervisor.run_folder.snapshot import BadSnapshot, Snapshot

PERIOD = 0.1
"""Seconds between two reads."""


def follow(folder: Path, found: Callable[[Snapshot], None]) -> None:
    """Call `found`, in a thread of its own, with each snapshot that appears in `folder`. A missing or damaged file is
    passed over: the next snapshot comes within seconds, and the verdict has a file of its own."""
    threading.Thread(target=_follow, args=(folder / snapshot.NAME, found), name="status.json", daemon=True).start()


def _follow(path: Path, found: Callable[[Snapshot], None]) -> None:
    before = b""
    while True:
        try:
            data = smallfile.read(path, snapshot.MAX_BYTES)
            if data != before:
                before = data
                found(snapshot.load(data))
        except (OSError, NotSmall, BadSnapshot):
            pass  # not there yet, or damaged by a full disk
        time.sleep(PERIOD)

"""Writes the journal of `launch` in a thread: a disk that is full or hangs delays nothing.

It is in /tmp/ft-UID/launch/JOB.RESTART.PID/ of the machine that `launch` runs on, as there is no run's folder before
there is a run. A copy goes to <run folder>/journal/NODE/journal-launch.jsonl once the verdict has identified the run.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ft_supervisor.core.launch.interface import LaunchBegin
from ft_supervisor.daemon import files
from ft_supervisor.journal import journal
from ft_supervisor.journal.journal import Journal


class Recorder:
    """Takes entries for the journal, and never waits until they are written."""

    def __init__(self, folder: Path, begin: LaunchBegin, now: float, failed: Callable[[str], None]) -> None:
        """`begin` and `now`: see Journal.open. `failed` is called in another thread with each problem, one line."""
        self._folder = folder
        self._failed = failed
        self._work: queue.SimpleQueue[Callable[[Journal], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(begin, now), name="journal", daemon=True)
        self._thread.start()

    def record(self, now: float, event: object, actions: Sequence[object]) -> None:
        """See Journal.record."""
        self._work.put(partial(Journal.record, now=now, event=event, actions=tuple(actions), term=None, cycle=None))

    def publish(self, run_folder: Path, node: str) -> None:
        """Copy the journal to the run's folder: see journal.publish."""
        self._work.put(lambda _: self._publish(run_folder, node))

    def finish(self, bound: float) -> bool:
        """Take no more entries. Return whether all are written within `bound` seconds."""
        self._work.put(None)
        self._thread.join(bound)
        return not self._thread.is_alive()

    def _run(self, begin: LaunchBegin, now: float) -> None:
        try:
            files.make_local_folder(self._folder)
        except OSError as error:
            self._failed(f"no journal: {error}")
            return
        lines = Journal.open(self._folder, "launch", begin, now, self._failed)
        for work in iter(self._work.get, None):
            work(lines)
        lines.close()

    def _publish(self, run_folder: Path, node: str) -> None:
        try:
            journal.publish(self._folder, run_folder, node)
        except OSError as error:
            self._failed(f"the journal stays in {self._folder}: {error}")

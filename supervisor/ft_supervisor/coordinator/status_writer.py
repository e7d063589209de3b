"""Writes status.json (run_folder.snapshot) of the coordinator in charge while the job runs.

It is written every EVERY seconds, or SOONEST after something happened, by one thread at a time; while that hangs, as on
an NFS that does, no other write is begun and the main loop goes on. Losing the race with a deposed coordinator is
harmless: each looks for a newer term in the file right before it puts its own there, the one in charge writes again
within seconds, and at the end readers go by the verdict's file.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ft_supervisor.coordinator.files import step_in
from ft_supervisor.coordinator.recent_events import RecentEvents
from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.checkpoint import CheckpointSeen
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.process import atomic
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import FailureLog, file_failed
from ft_supervisor.run_folder import ownfolder, smallfile
from ft_supervisor.run_folder.snapshot import (
    EVERY,
    MAX_BYTES,
    NAME,
    BadSnapshot,
    CheckpointStatus,
    Snapshot,
    dump,
    load,
)

SOONEST = 0.5
"""Seconds between two status files, however much happens."""


class StatusWriter:
    """Takes snapshots and writes them in threads. Its methods are for the main thread."""

    def __init__(self, job: Job, node: str, tell: Callable[[CheckpointSeen], None] | None = None) -> None:
        """`node`: the name of this node; `tell` gets each new checkpoint, in a thread."""
        self._file = StatusFile(Path(job.run_folder), job.settings.step_file, tell)
        self._events = RecentEvents(job, node)
        self._writing: Background[None] | None = None
        self._written_at = float("-inf")
        self._news = False
        self._failures = FailureLog("snapshot")

    def news(self, fact: Fact) -> None:
        """Note that something has happened that people may want to see."""
        self._news = True
        self._events.note(fact, time.time())

    def beat(self, machine: CoordinatorMachine, now: float) -> None:
        """Begin to write when it is due, if this coordinator is in charge. Never waits."""
        due = machine.term is not None and now - self._written_at >= (SOONEST if self._news else EVERY)
        if due and (self._writing is None or self._writing.wait(0)):
            self._writing = self._write(machine, now) or self._writing

    def end(self, machine: CoordinatorMachine, now: float) -> list[Background[None]]:
        """Begin to write the final status, if this coordinator is in charge. It comes after a write under way."""
        last = None if machine.term is None else self._write(machine, now)
        return [last] if last else []

    def _write(self, machine: CoordinatorMachine, now: float) -> Background[None] | None:
        self._written_at, self._news = now, False
        try:
            shot = replace(snapshot(machine, now, time.time()), events=self._events.newest)
        except Exception as error:  # an error in a display must not end a training
            self._failures.note(error)
            return None
        return Background("status file", partial(self._file.write, shot), file_failed)


class StatusFile:
    """The file <run folder>/status.json. A write replaces it as a whole, or leaves it as it was."""

    def __init__(
        self, run_folder: Path, step_file: str = "", tell: Callable[[CheckpointSeen], None] | None = None
    ) -> None:
        """`step_file`: the path of checkpoint.step_file, "" without one; `tell` gets each new checkpoint."""
        self._path = run_folder / NAME
        self._step_file = step_file
        self._tell = tell
        self._checkpoint: CheckpointStatus | None = None
        self._former: Snapshot | None = None
        """The last snapshot of the coordinator that was in charge before this one's term."""
        self._term: int | None = None
        """The term for which `_former` was read: a coordinator may take over more than once."""
        self._lock = threading.Lock()
        self._failures = FailureLog("status file")

    def write(self, shot: Snapshot) -> None:
        """Write the snapshot, unless the file is of a newer term. For a thread: may hang. Errors are logged."""
        with self._lock:
            try:
                self._write(shot)
            except OSError as error:
                self._failures.note(error)
            else:
                self._failures.note(None)

    def _write(self, shot: Snapshot) -> None:
        ownfolder.make(self._path.parent)
        there = self._there()
        if (_term(there, shot.run_id) or -1) > (shot.coordinator.term or -1):
            return
        if self._term != shot.coordinator.term:
            self._term, self._former = shot.coordinator.term, _parsed(there, shot)
        atomic.replace(self._path, dump(replace(self._completed(shot), checkpoint=self._newest_checkpoint())))

    def _newest_checkpoint(self) -> CheckpointStatus | None:
        """Return the newest checkpoint; the one before if the step file is just being written, or cannot be read."""
        if self._step_file:
            path = Path(self._step_file)
            with suppress(OSError):  # there is no checkpoint yet, or its file is being replaced
                written = path.stat().st_mtime
                known = self._checkpoint is not None and self._checkpoint.time == written
                if not known and (step := step_in(path)) is not None:
                    self._checkpoint = CheckpointStatus(step, written)
                    if self._tell is not None:
                        self._tell(CheckpointSeen(step, written))
        return self._checkpoint

    def _there(self) -> bytes:
        try:
            return smallfile.read(self._path, MAX_BYTES)
        except (FileNotFoundError, smallfile.NotSmall):
            return b""

    def _completed(self, shot: Snapshot) -> Snapshot:
        """Return the snapshot with what only the predecessor could know."""
        former, cycle = self._former, shot.cycle
        if former is None:
            return shot
        if cycle is not None and cycle.started is None and former.cycle is not None and former.cycle.name == cycle.name:
            cycle = former.cycle
        return replace(shot, cycle=cycle, decision=shot.decision or former.decision, step=shot.step or former.step)


def _term(data: bytes, run_id: str) -> int | None:
    """Return the term of the coordinator that wrote the file; None unless it is a snapshot of this run. Cheaper than to
    parse all of it."""
    try:
        value = json.loads(data)
        term = value["coordinator"]["term"] if value["run_id"] == run_id else None
    except (ValueError, RecursionError, TypeError, LookupError):
        return None
    return term if isinstance(term, int) else None


def _parsed(data: bytes, ours: Snapshot) -> Snapshot | None:
    try:
        found = load(data)
    except BadSnapshot:
        return None
    return found if found.run_id == ours.run_id else None

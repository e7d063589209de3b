"""What the coordinator in charge keeps in the run's folder while the job runs: status.json, and a copy of its journal.

    status.json                  run_folder.snapshot: every EVERY seconds, or SOONEST after something happened
    journal/<node>/<same name>   what is new in its own journal, every COPY_EVERY seconds

Each is written by one thread at a time; while that hangs, as on an NFS that does, nothing else is begun and nobody
waits. Losing the race with a deposed coordinator is harmless: each looks for a newer term in the file right before it
puts its own there, the one in charge writes again within seconds, and at the end readers go by the verdict's file.
The daemon's copy of all journals, at its end, puts whole files in the place of this one, under the same names.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ft_supervisor.coordinator.snapshot_of import snapshot
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol.model import Node
from ft_supervisor.process import atomic
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import file_failed
from ft_supervisor.run_folder import ownfolder, smallfile
from ft_supervisor.run_folder.snapshot import EVERY, MAX_BYTES, NAME, BadSnapshot, Snapshot, dump, load

SOONEST = 0.5
"""Seconds between two status files, however much happens."""
COPY_EVERY = 10.0
"""Seconds between two looks at the journal."""
CHUNK = 2**20
"""Bytes that are copied at a time."""


class Live:
    """For the main thread: it takes snapshots, and hands them over. `journal`: the coordinator's own file."""

    def __init__(self, run_folder: Path, node: Node, journal: Path) -> None:
        self._status = StatusFile(run_folder)
        self._copy = JournalCopy(journal, run_folder, node.name)
        self._writing: Background[None] | None = None
        self._copying: Background[None] | None = None
        self._written_at = self._copied_at = float("-inf")
        self._news = False
        self._failures = _Failures("snapshot")

    def news(self) -> None:
        """Something has happened that people may want to see."""
        self._news = True

    def beat(self, machine: CoordinatorMachine, now: float) -> None:
        """Begin what is due, if this coordinator is in charge. Never waits."""
        if machine.term is None:
            return
        if now - self._written_at >= (SOONEST if self._news else EVERY) and _is_over(self._writing):
            self._writing = self._write(machine, now) or self._writing
        if now - self._copied_at >= COPY_EVERY and _is_over(self._copying):
            self._copying, self._copied_at = self._copy.begin(), now

    def end(self, machine: CoordinatorMachine, now: float) -> list[Background[None]]:
        """Begin to write what holds at the end; it comes after what is still being written."""
        if machine.term is None:
            return []
        last = self._write(machine, now)
        return [*([last] if last else []), self._copy.begin()]

    def _write(self, machine: CoordinatorMachine, now: float) -> Background[None] | None:
        self._written_at, self._news = now, False
        try:
            shot = snapshot(machine, now, time.time())
        except Exception as error:  # whoever only looks on must not end a training
            self._failures.tell(error)
            return None
        return Background("status file", partial(self._status.write, shot), file_failed)


def _is_over(piece: Background[None] | None) -> bool:
    return piece is None or piece.wait(0)


class _Failures:
    """Says what is wrong once, not every two seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._said = ""

    def tell(self, error: Exception | None) -> None:
        """None: it went well."""
        text = str(error or "")
        if error is not None and text != self._said:
            file_failed(self._what, error)
        self._said = text


class StatusFile:
    """<run folder>/status.json, whole or as it was before."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / NAME
        self._former: Snapshot | None = None
        """What the coordinator in charge before this one's term has left."""
        self._term: int | None = None
        """The term in which that was looked for: a coordinator may take over more than once."""
        self._lock = threading.Lock()
        self._failures = _Failures("status file")

    def write(self, shot: Snapshot) -> None:
        """Put it there, unless the file is of a newer term. For a thread: may hang. Errors are logged."""
        with self._lock:
            try:
                self._write(shot)
            except OSError as error:
                self._failures.tell(error)
            else:
                self._failures.tell(None)

    def _write(self, shot: Snapshot) -> None:
        ownfolder.make(self._path.parent)
        there = self._there()
        if (_term(there, shot.run_id) or -1) > (shot.coordinator.term or -1):
            return
        if self._term != shot.coordinator.term:
            self._term, self._former = shot.coordinator.term, _parsed(there, shot)
        atomic.replace(self._path, dump(self._completed(shot)))

    def _there(self) -> bytes:
        try:
            return smallfile.read(self._path, MAX_BYTES)
        except (FileNotFoundError, smallfile.NotSmall):
            return b""

    def _completed(self, shot: Snapshot) -> Snapshot:
        """With what only our predecessor could know."""
        former, cycle = self._former, shot.cycle
        if former is None:
            return shot
        if cycle is not None and cycle.started is None and former.cycle is not None and former.cycle.name == cycle.name:
            cycle = former.cycle
        return replace(shot, cycle=cycle, decision=shot.decision or former.decision)


def _term(data: bytes, run_id: str) -> int | None:
    """That of the coordinator that wrote this; None for what is no snapshot of this run. Cheaper than to read all."""
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


class JournalCopy:
    """A copy, byte by byte, of a journal that grows, and of the parts that it goes on in (journal.journal)."""

    def __init__(self, journal: Path, run_folder: Path, node: str) -> None:
        self._sources = [journal.with_suffix(suffix) for suffix in (".jsonl", ".rest-old.jsonl", ".rest.jsonl")]
        self._run_folder = run_folder
        self._folder = run_folder / "journal" / node
        self._known: dict[int, tuple[Path, int]] = {}
        """By inode, as a part changes its name: its copy, and how much of it is there."""
        self._lock = threading.Lock()
        self._failures = _Failures("copy of the journal")

    def begin(self) -> Background[None]:
        """Copy what is new, in a thread that may hang. Errors are logged."""
        return Background("copy of the journal", self.update, file_failed)

    def update(self) -> None:
        """The same here and now."""
        with self._lock:
            try:
                for source in self._sources:
                    self._update(source)
            except OSError as error:
                self._failures.tell(error)
            else:
                self._failures.tell(None)

    def _update(self, source: Path) -> None:
        try:
            file = source.open("rb")
        except FileNotFoundError:
            return
        with file:
            found = os.fstat(file.fileno())
            copy, done = self._continued(source, found.st_ino, found.st_size)
            try:
                with os.fdopen(os.open(copy, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as out:
                    self._append(file, out, found.st_ino, copy, done)
            except FileNotFoundError:
                del self._known[found.st_ino]  # somebody has removed it: all of it again, next time
                raise

    def _continued(self, source: Path, inode: int, size: int) -> tuple[Path, int]:
        """The copy, which is there, and how much it has of this source."""
        copy = self._folder / source.name
        known, done = self._known.get(inode, (None, 0))
        old, rest = (self._folder / each.name for each in self._sources[1:])
        if known is not None and done <= size and (known == copy or (known, copy) == (rest, old)):
            if known != copy:
                known.replace(copy)
        else:  # new, or the inode of a part that is gone
            ownfolder.make(self._run_folder, "journal", self._folder.name)
            copy.unlink(missing_ok=True)  # another's, or what a former part had under the name
            os.close(atomic.create(copy, 0o600))
            done = 0
        self._known[inode] = copy, done
        return copy, done

    def _append(self, file: BinaryIO, out: BinaryIO, inode: int, copy: Path, done: int) -> None:
        """By position, and not at its end: what was begun before a failure is written again."""
        file.seek(done)
        out.seek(done)
        while data := file.read(CHUNK):
            out.write(data)
            out.flush()
            done += len(data)
            self._known[inode] = copy, done

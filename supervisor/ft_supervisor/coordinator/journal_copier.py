"""Copies the journal of the coordinator in charge to `<run folder>/journal/<node>/` while the job runs.

Every EVERY seconds it copies new data, by one thread at a time; while that hangs, as on an NFS that does, no other
copy is begun and the main loop goes on. The daemon's copy of all journals, at its end, puts whole files in the place of
these, under their names.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import BinaryIO

from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.process import atomic
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import FailureLog, file_failed
from ft_supervisor.run_folder import ownfolder

EVERY = 10.0
"""Seconds between two copies."""
CHUNK = 2**20
"""Bytes that are copied at a time."""


class JournalCopier:
    """A copy, byte by byte, of a journal that grows, and of the parts in which it continues (journal.journal).

    `beat` and `end` are for the main thread. `journal`: the coordinator's own file. `node`: the name of its node.
    """

    def __init__(self, journal: Path, run_folder: Path, node: str) -> None:
        self._sources = [journal.with_suffix(suffix) for suffix in (".jsonl", ".rest-old.jsonl", ".rest.jsonl")]
        self._run_folder = run_folder
        self._folder = run_folder / "journal" / node
        self._known: dict[int, tuple[Path, int]] = {}
        """By inode, as a part changes its name: its copy, and how many bytes of it are there."""
        self._lock = threading.Lock()
        self._failures = FailureLog("copy of the journal")
        self._copying: Background[None] | None = None
        self._copied_at = float("-inf")

    def beat(self, machine: CoordinatorMachine, now: float) -> None:
        """Begin a copy when it is due, if this coordinator is in charge. Never waits."""
        due = machine.term is not None and now - self._copied_at >= EVERY
        if due and (self._copying is None or self._copying.wait(0)):
            self._copying, self._copied_at = self._begin(), now

    def end(self, machine: CoordinatorMachine) -> list[Background[None]]:
        """Begin the last copy, if this coordinator is in charge. It comes after one that is still under way."""
        return [] if machine.term is None else [self._begin()]

    def update(self) -> None:
        """Copy what is new, in the caller's thread. May hang. Errors are logged."""
        with self._lock:
            try:
                for source in self._sources:
                    self._update(source)
            except OSError as error:
                self._failures.note(error)
            else:
                self._failures.note(None)

    def _begin(self) -> Background[None]:
        return Background("copy of the journal", self.update, file_failed)

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
                del self._known[found.st_ino]  # the copy was removed: copy all of it next time
                raise

    def _continued(self, source: Path, inode: int, size: int) -> tuple[Path, int]:
        """Return the copy of this source, which exists then, and how many bytes it has of it."""
        copy = self._folder / source.name
        known, done = self._known.get(inode, (None, 0))
        old, rest = (self._folder / each.name for each in self._sources[1:])
        if known is not None and done <= size and (known == copy or (known, copy) == (rest, old)):
            if known != copy:
                known.replace(copy)
        else:  # new, or the inode of a part that is gone
            ownfolder.make(self._run_folder, "journal", self._folder.name)
            copy.unlink(missing_ok=True)  # another program's file, or the copy of a former part
            os.close(atomic.create(copy, 0o600))
            done = 0
        self._known[inode] = copy, done
        return copy, done

    def _append(self, file: BinaryIO, out: BinaryIO, inode: int, copy: Path, done: int) -> None:
        """Write by position, and not at the end of the file: bytes whose writing failed are written again."""
        file.seek(done)
        out.seek(done)
        while data := file.read(CHUNK):
            out.write(data)
            out.flush()
            done += len(data)
            self._known[inode] = copy, done

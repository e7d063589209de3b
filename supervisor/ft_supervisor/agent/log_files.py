"""Writes the workers' output to <run folder>/logs/<cycle>/rank<RANK>.log, stdout and stderr as they came.

At `max_size` bytes FILE becomes FILE.1, FILE.1 becomes FILE.2, and so on. One thread does all of it, as the file system
may be slow, full, or hang for ever. Output that it does not take is dropped, and a line in the file marks the gap.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ft_supervisor.process import atomic
from ft_supervisor.process.bounded_writer import BoundedWriter
from ft_supervisor.process.log import log
from ft_supervisor.run_folder import ownfolder

_PATIENCE = 0.25
"""Seconds after which a file system that takes nothing counts as dead, until it moves again."""
_RETRY = 5.0
"""Seconds between two attempts at a file that can't be written."""
_LOOK = 1.0
"""Seconds between two checks whether a file is still there."""
_TELL = 10.0
"""Seconds between two log lines about missing output."""


class LogFile:
    """One rank's file of one cycle, made when its first output comes. For the writing thread, except `missed`.

    `missed`: bytes that have not even got into the queue; for the reading thread.
    """

    def __init__(self, path: Path, max_size: int, keep: int, run_folder: Path | None = None) -> None:
        """Name the file; it is made later. `run_folder`: the folder above that has to be ours; None: any will do."""
        self.path = path
        self._run_folder = run_folder
        self.missed = 0
        self.error: OSError | None = None
        """Why the last attempt failed."""
        self._retry_at = 0.0
        self._max_size = max_size
        self._keep = keep
        self._fd: int | None = None
        self._size = 0
        self._unfinished = False
        self._lost = 0
        self._looked = 0.0

    def write(self, data: bytes) -> int:
        """Append the data. Returns how many bytes of it are lost, which the file will mention as soon as it can."""
        lost = len(data)
        if self.error is None or time.monotonic() >= self._retry_at:
            self.error = None
            note = (b"\n" if self._unfinished else b"") + gap(self._lost) if self._lost else b""
            if self._append(note) == len(note):
                self._lost = 0
                lost -= self._append(data)
        self._lost += lost
        return lost

    def close(self) -> None:
        """Close the file; no more output comes."""
        if self._lost:  # a last attempt to mention it
            self._retry_at = 0.0
            self.write(b"")
        self._let_go()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, None
        try:
            if fd is not None:
                os.close(fd)
        except OSError as error:  # NFS reports a full disk here
            self.error = error

    def _append(self, data: bytes) -> int:
        """Return the number of bytes written; fewer than given if there is an error."""
        at = 0
        try:
            while at < len(data):
                fd = self._opened()
                end = self._end(data, at)
                if end == at:
                    self._rotate()
                    continue
                written = os.write(fd, memoryview(data)[at:end])
                at += written
                self._size += written
                self._unfinished = data[at - 1 : at] != b"\n"
        except OSError as error:
            self._let_go()
            self.error, self._retry_at = error, time.monotonic() + _RETRY
        return at

    def _opened(self) -> int:
        """Open the present part, or a new one where it has been removed, and return its descriptor."""
        now = time.monotonic()
        if self._fd is not None and now - self._looked >= _LOOK:
            self._looked = now
            if os.fstat(self._fd).st_nlink == 0:
                self._let_go()
        if self._fd is None:
            if self._run_folder is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            else:
                ownfolder.make(self._run_folder, *self.path.parent.relative_to(self._run_folder).parts)
            self._fd = atomic.append(self.path)
            self._size, self._looked = os.fstat(self._fd).st_size, now
        return self._fd

    def _end(self, data: bytes, at: int) -> int:
        """Return the end of the data that goes into the present part: whole lines, unless one is longer than a whole
        part."""
        room = self._max_size - self._size
        if len(data) - at <= room:
            return len(data)
        if room <= 0:
            return at
        end = data.rfind(b"\n", at, at + room) + 1
        if end > 0:
            return end
        return at + room if self._size == 0 or self._unfinished else at

    def _rotate(self) -> None:
        self._let_go()
        if not self._keep:
            self.path.unlink(missing_ok=True)
            return
        last = 1
        while last < self._keep and self._part(last).exists():
            last += 1
        for n in range(last, 0, -1):
            with suppress(FileNotFoundError):
                self._part(n - 1).replace(self._part(n))

    def _part(self, n: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{n}") if n else self.path


def gap(size: int) -> bytes:
    """Return the line that stands in a file where so many bytes are missing."""
    return b"[ft-supervisor: %d bytes are missing here]\n" % size


class LogFiles:
    """All files and the thread that writes them. `put`, `close` and `wait_for_room` are for one thread, `flush` is for
    any."""

    def __init__(self) -> None:
        self._writer: BoundedWriter[LogFile] = BoundedWriter("workers' files", self._write, _PATIENCE)
        self._hangs = False
        self._failing: set[LogFile] = set()
        self._refused = self._lost = self._told = 0
        """Bytes dropped by the reading thread, bytes dropped by the writing one, and how many of both were logged."""
        self._told_at = float("-inf")
        self.wait_for_room = self._writer.wait_for_room
        self.flush = self._writer.flush

    @property
    def missing(self) -> int:
        """Return the number of bytes that are in no file now, and that no line mentions."""
        return self._writer.waiting + self._refused + self._lost - self._told

    def put(self, file: LogFile, data: bytes) -> None:
        """Queue output for a file. Never waits."""
        if self._writer.put(file, gap(file.missed) + data if file.missed else data):
            file.missed = 0
            return
        file.missed += len(data)
        self._refused += len(data)
        if not self._hangs:  # the writing thread cannot report it itself
            self._hangs = True
            log("worker_logs_hang", "warning", file=file.path)

    def close(self, file: LogFile) -> None:
        """Close the file after its queued output. No more output comes for it."""
        if file.missed:
            self._writer.put(file, gap(file.missed), small=True)
        self._writer.put(file, b"", small=True)

    def _write(self, file: LogFile, data: bytes) -> int:
        lost = file.write(data) if data else 0
        if not data:
            file.close()
        self._writer.moved()
        self._lost += lost
        self._tell(file, ends=not data)
        return lost

    def _tell(self, file: LogFile, ends: bool) -> None:
        """Log the first file that fails, and, when none fails any more, how much is missing."""
        if file.error is not None and file not in self._failing:
            if not self._failing:
                log("worker_logs_fail", "warning", file=file.path, error=file.error.strerror)
            self._failing.add(file)
        if file.error is None or ends:
            self._failing.discard(file)
        now = time.monotonic()
        new = self._refused + self._lost - self._told
        if new and not self._failing and (ends or now - self._told_at >= _TELL):
            self._hangs, self._told_at = False, now
            self._told += new
            log("worker_logs_dropped", "warning", bytes=new)

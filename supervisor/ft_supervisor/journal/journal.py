"""The journal: every event that one of the core's machines was given, and what came out, as JSON lines.

`<folder>/journal-<name>.jsonl`, where the name begins with the machine's kind: daemon, agent-3, coordinator-1, launch.
A process writes a header and then a line for each event; each line is one write(2), so that a kill leaves whole lines
and at most one torn last line, which readers skip. Whoever opens the file again goes on below with a header of its own.

    header      {"journal": 2, "protocol", "version", "machine", "name", "time", "now", "begin"}
    event       {"time", "now", "term", "cycle", "event", "actions", "reason"}; `event` is null for start(now)
    quiet event [TYPE, now, checksum of the actions (0: there were none), fields of the event...]
    full        {"full": "...", "rest": FILE}: the bound is reached

`now` is the machine's own clock, in seconds and exact, `time` is for people. `reason` is that of the first action which
has one. A quiet event is one of those that come every heartbeat, with nothing but the usual heartbeat coming out: about
40 to 90 bytes, a fifth of what it would be. The first half of the bound is kept, as only a journal with its beginning
can be replayed; the rest goes on in `journal-<name>.rest.jsonl`, which starts anew (the former one becomes `.rest-old`)
at each quarter, and is for reading only.

No secrets: see tagged.hide_secrets. The core does not decide by them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ft_supervisor.core.launch.interface import LaunchBegin
from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.journal.lines import event_line, header_line, is_quiet, quiet_line
from ft_supervisor.journal.tagged import text
from ft_supervisor.process import atomic
from ft_supervisor.run_folder import ownfolder

LIMIT = 64 * 1024 * 1024
"""Bytes of one journal, the part for reading only included: 16 hours of heartbeats and more can be replayed."""

_ROOM = 512
"""Bytes for the line that says where the journal goes on."""


class Journal:
    """One machine's journal. `failed` is told, once, why nothing is recorded any more: training goes on without it."""

    def __init__(self, path: Path, failed: Callable[[str], None], limit: int) -> None:
        self._path = path
        self._failed = failed
        self._limit = limit
        self._fd: int | None = None
        self._size = 0
        self._bound = limit // 2 - _ROOM
        self._rest = path.with_suffix(".rest.jsonl")
        self._in_rest = False
        self._last: tuple[int | None, str | None] = (None, None)

    @property
    def path(self) -> Path:
        """The file that it begins with."""
        return self._path

    @classmethod
    def open(
        cls,
        folder: Path,
        name: str,
        begin: Begin | LaunchBegin,
        now: float,
        failed: Callable[[str], None],
        limit: int = LIMIT,
    ) -> Journal:
        """The journal of the machine that was made of `begin` at `now` (the very same number: replay needs it).

        A daemon gives Begin(job, node, 0, Memory(), epoch). `name` begins with the machine's kind. `folder` is made if
        missing. Never raises: without a file nothing is recorded.
        """
        journal = cls(folder / f"journal-{name}.jsonl", failed, limit)
        journal._guarded(lambda: journal._begin(name, begin, now))
        return journal

    def record(
        self, now: float, event: object, actions: Sequence[object], *, term: int | None, cycle: Cycle | None
    ) -> None:
        """That `handle(event, now)` has returned these actions; `event` None means start(now).

        To be called in the order of the calls, and before the actions are carried out: the last one may be the end of
        the process. Never raises.
        """
        if self._fd is not None:
            self._guarded(lambda: self._event(now, event, actions, (term, None if cycle is None else str(cycle))))

    def close(self) -> None:
        """Record nothing more. A process that ends needs not."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # nothing that is wrong with the journal may end a training
            try:
                self.close()
            finally:
                self._fd = None
                self._failed(f"no journal any more: {type(error).__name__}: {error}")

    # -- lines

    def _begin(self, name: str, begin: Begin | LaunchBegin, now: float) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._open(self._path)
        self._write(header_line(name, begin, now))

    def _event(
        self, now: float, event: object, actions: Sequence[object], where: tuple[int | None, str | None]
    ) -> None:
        if where == self._last and is_quiet(event, actions):
            self._write(quiet_line(now, event, actions))
            return
        self._last = where
        self._write(event_line(now, event, actions, *where))

    # -- the file

    def _open(self, path: Path) -> None:
        self.close()
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._put(b"\n")  # somebody was killed in the middle of a line
        if path == self._rest and not self._size:
            self._write_line({"rest": f"for reading only: what comes before is in {self._path.name}"})

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        if self._size and self._size + len(data) > self._bound:
            self._go_on(len(data))
        self._put(data)

    def _go_on(self, length: int) -> None:
        """This file is full: go on in the next one."""
        if not self._in_rest:
            self._write_line({"full": "what follows can be read, but not replayed", "rest": self._rest.name})
            self._in_rest, self._bound = True, self._limit // 4
            self._open(self._rest)
            if self._size + length <= self._bound:
                return
        self._rest.replace(self._path.with_suffix(".rest-old.jsonl"))
        self._open(self._rest)

    def _write_line(self, value: object) -> None:
        self._put(text(value).encode() + b"\n")

    def _put(self, data: bytes) -> None:
        assert self._fd is not None
        written = os.write(self._fd, data)
        self._size += written
        if written != len(data):
            raise OSError(f"{self._path}: only {written} of {len(data)} bytes could be written")


def publish(folder: Path, run_folder: Path, node: str) -> None:
    """Copy a node's journals from its own folder to <run folder>/journal/<node>/ (made if missing), each a whole file
    or not at all, and for the user alone, as the originals are.

    For a thread: a shared file system may hang. Raises OSError.
    """
    found = sorted(folder.glob("journal-*.jsonl"))
    if not found:
        return
    destination = ownfolder.make(run_folder, "journal", node)
    for path in found:
        with path.open("rb") as source, atomic.replacing(destination / path.name, 0o600) as copy:
            shutil.copyfileobj(source, copy, 1 << 20)

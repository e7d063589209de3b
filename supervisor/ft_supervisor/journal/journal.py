"""The journal: every event that one of the core's machines has received, with the actions that followed, as JSON lines.

`<folder>/journal-<name>.jsonl`, where the name begins with the machine's kind: daemon, agent-3, coordinator-1, launch.
A process writes a header and then a line for each event; each line is one write(2), so that a kill leaves whole lines
and at most one torn last line, which readers skip. A process that opens the file again appends a header of its own.

    header      {"journal": 2, "protocol", "version", "machine", "name", "time", "now", "begin"}
    event       {"time", "now", "term", "cycle", "event", "actions", "reason"}; `event` is null for start(now)
    quiet event [TYPE, now, checksum of the actions (0: there were none), fields of the event...]
    full        {"full": "...", "rest": FILE}: the bound is reached

`now` is the machine's own clock, exact and in seconds; `time` is for people. `reason` is that of the first action which
has one. A quiet event comes with every heartbeat, and only the usual heartbeat follows from it: its line has 40 to 90
bytes, a fifth of the full form. The first half of the bound is kept, because only a journal with its beginning can be
replayed. Later lines go to `journal-<name>.rest.jsonl`, which is for reading only; after each quarter of the bound it
becomes `.rest-old`, and a new one begins.

The journal contains no secrets (tagged.hide_secrets); the core does not decide by them.
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
"""Bytes of one journal with its read-only part: at least 16 hours of heartbeats can be replayed."""

_ROOM = 512
"""Bytes that are reserved for the line with the name of the next file."""


class Journal:
    """One machine's journal. `failed` is called once with the reason if nothing can be recorded any more: the training
    goes on without the journal."""

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
        """The first file of the journal."""
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
        """Open the journal of the machine that was made from `begin` at `now` (replay needs exactly that number).

        A daemon passes Begin(job, node, 0, Memory(), epoch). `name` begins with the machine's kind. `folder` is made if
        missing. `limit`: bytes. Never raises: without a file nothing is recorded.
        """
        journal = cls(folder / f"journal-{name}.jsonl", failed, limit)
        journal._guarded(lambda: journal._begin(name, begin, now))
        return journal

    def record(
        self, now: float, event: object, actions: Sequence[object], *, term: int | None, cycle: Cycle | None
    ) -> None:
        """Record that `handle(event, now)` has returned these actions; `event` None means start(now).

        Call it in the order of the machine's calls, and before the actions are carried out: the last one may end the
        process. Never raises.
        """
        if self._fd is not None:
            self._guarded(lambda: self._event(now, event, actions, (term, None if cycle is None else str(cycle))))

    def close(self) -> None:
        """Close the file and record nothing more. A process that ends need not call it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # no problem of the journal may end a training
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
            self._put(b"\n")  # the former process was killed in the middle of a line
        if path == self._rest and not self._size:
            self._write_line({"rest": f"for reading only: what comes before is in {self._path.name}"})

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        if self._size and self._size + len(data) > self._bound:
            self._go_on(len(data))
        self._put(data)

    def _go_on(self, length: int) -> None:
        """Go on in the next file, as this one is full."""
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
    """Copy a node's journals from its own folder to <run folder>/journal/<node>/ (made if missing). Each copy is a
    whole file or none, and only the user can read it, like the original.

    Call it in a thread: a shared file system may hang. Raises OSError.
    """
    found = sorted(folder.glob("journal-*.jsonl"))
    if not found:
        return
    destination = ownfolder.make(run_folder, "journal", node)
    for path in found:
        with path.open("rb") as source, atomic.replacing(destination / path.name, 0o600) as copy:
            shutil.copyfileobj(source, copy, 1 << 20)

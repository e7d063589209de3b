"""Reads what workers have printed: <run folder>/logs/<cycle>/rank<RANK>.log and the older parts FILE.1, FILE.2, ...

Agents write these files (agent.log_files) and move a full one out of the way. Functions may hang for as long as the
file system does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ft_supervisor.run_folder import smallfile

_CYCLE = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")
_RANK = re.compile(r"rank([0-9]{1,9})\.log")
_PIECE = 1 << 20
_TAIL = 64 * 1024


def cycles(folder: Path) -> list[str]:
    """Return the cycles of the run in `folder` that have printed anything, in order. Raises OSError."""
    found = []
    try:
        for path in (folder / "logs").iterdir():
            if match := _CYCLE.fullmatch(path.name):
                found.append((int(match[1]), int(match[2]), path.name))
    except FileNotFoundError:
        return []
    return [name for _, _, name in sorted(found)]


def ranks(folder: Path, cycle: str) -> list[int]:
    """Return the ranks that have printed anything in this cycle, in order. Raises OSError."""
    names = [_RANK.fullmatch(path.name) for path in (folder / "logs" / cycle).iterdir()]
    return sorted(int(match[1]) for match in names if match)


def file(folder: Path, cycle: str, rank: int) -> Path:
    """Return the file of this worker's newest output."""
    return folder / "logs" / cycle / f"rank{rank}.log"


def parts(path: Path) -> list[Path]:
    """Return the parts of the output that exist, the oldest first; `path` itself is the newest."""
    older: list[Path] = []
    while (part := path.with_name(f"{path.name}.{len(older) + 1}")).exists():
        older.append(part)
    return [*reversed(older), *([path] if path.exists() else [])]


def last_lines(path: Path, most: int) -> tuple[str, ...]:
    """Return the output's last lines, of which the last 64 KiB are read; none if it is missing or may not be read."""
    lines: list[str] = []
    for part in reversed(parts(path)):  # the newest may have been begun just now
        try:
            with smallfile.opened(part) as opened:
                opened.seek(max(0, opened.seek(0, os.SEEK_END) - _TAIL))
                lines = [*opened.read(_TAIL).decode(errors="replace").splitlines(), *lines]
        except (OSError, smallfile.NotSmall):
            break
        if len(lines) >= most:
            break
    return tuple(lines[-most:])


class LogReader:
    """Reads one worker's output of one cycle as it grows, across the moments at which its file is moved away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._inode = -1

    def new(self) -> Iterator[bytes]:
        """Yield what was written since the last call. Raises OSError and NotSmall."""
        while True:
            yield from self._rest()
            try:
                after = self._after()
                following = None if after is None else smallfile.opened(after)
            except FileNotFoundError:  # it was moved away at this moment
                continue
            if following is None:
                return
            yield from self._rest()  # was written before the file was moved away, and after the look at it
            self.close()
            self._file, self._inode = following, os.fstat(following.fileno()).st_ino

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _rest(self) -> Iterator[bytes]:
        while self._file is not None and (piece := self._file.read(_PIECE)):
            yield piece

    def _after(self) -> Path | None:
        found = parts(self._path)
        inodes = [part.stat().st_ino for part in found]
        # A part that is gone was older than all that are left.
        at = inodes.index(self._inode) + 1 if self._inode in inodes else 0
        return found[at] if at < len(found) else None

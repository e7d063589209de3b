"""Files that are written whole or not at all, and never through what another program has put at their name.

    replace, replacing   a new file takes the place of what has the name, of a link or pipe as well (rename(2))
    keep_first           a file that only its first writer makes (link(2)), and that a power failure does not lose
    create, append       a descriptor; a link at the name is an error

A writer that is killed leaves at most a file `.NAME.RANDOM` beside the one that it was to write; an error, such as a
full disk, leaves nothing. `replace` does not wait for the disk: what it writes is written again soon, or can be missed
after a power failure. Each may hang for as long as the file system does.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def replace(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Puts `data` at `path`. Raises OSError, also for a folder at `path`."""
    with replacing(path, mode) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file to write into, which takes the place of `path` when the block ends without an exception."""
    with _temporary(path) as temporary:
        with os.fdopen(create(temporary, mode), "wb") as file:
            yield file
        temporary.replace(path)


def keep_first(path: Path, data: bytes) -> bool:
    """Puts `data` at `path` and on the disk, unless anything has the name already: then False.

    By link(2), which fails where the name exists, also over NFS. Raises OSError.
    """
    with _temporary(path) as temporary:
        with os.fdopen(create(temporary), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        _sync_folder(path.parent)
    return True


def create(path: Path, mode: int = 0o666) -> int:
    """A descriptor of a new file, for reading and writing. FileExistsError where anything has the name."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def append(path: Path, mode: int = 0o666) -> int:
    """A descriptor that appends to the file, made if missing. OSError (ELOOP) for a link."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A name beside `path` that nothing else has; what has it at the end is removed."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"  # with_name does not take the path `.`
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A name is on the disk when its folder is (fsync(2))."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

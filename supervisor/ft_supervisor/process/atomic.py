"""Writes files whole or not at all, and never through a link or pipe that another program has put at their name.

    replace, replacing   a new file takes the place of any file, link or pipe of that name (rename(2))
    keep_first           a file that only its first writer makes (link(2)), and that a power failure does not lose
    create, append       a descriptor; a link at the name is an error

A writer that is killed leaves at most a file `.NAME.RANDOM` beside the one that it was to write; an error, such as a
full disk, leaves nothing. `replace` does not wait for the disk: its callers write again soon, or can do without the
file after a power failure. Each function may hang for as long as the file system does.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def replace(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Put `data` at `path`. Raises OSError, also for a folder at `path`."""
    with replacing(path, mode) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a new file to write into, which takes the place of `path` when the block ends without an exception."""
    with _temporary(path) as temporary:
        with os.fdopen(create(temporary, mode), "wb") as file:
            yield file
        temporary.replace(path)


def keep_first(path: Path, data: bytes) -> bool:
    """Put `data` at `path` and on the disk. Return False, and write nothing, if anything has the name already.

    It uses link(2), which fails where the name exists, also over NFS. Raises OSError.
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
    """Create a file and return its descriptor, for reading and writing. Raises FileExistsError if anything has the
    name."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def append(path: Path, mode: int = 0o666) -> int:
    """Return a descriptor that appends to the file, which is created if missing. Raises OSError (ELOOP) for a link."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` that nothing else has. A file that still has it at the end is removed."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"  # with_name does not take the path `.`
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Sync the folder, as only then a new name in it is on the disk (fsync(2))."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Reads files in places where others can write: never waits for a pipe, and bounds the size."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotSmall(Exception):
    """The path is no regular file, or the file is too long. The message is one line, which ends in `problem`."""

    def __init__(self, path: Path, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{path}: {problem}")


def opened(path: Path) -> BinaryIO:
    """Open the file for reading. Raises NotSmall for a pipe, device or folder, without waiting for it, and OSError as
    open does. May hang for as long as the file system does."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotSmall(path, "no regular file")
        return open(fd, "rb")  # noqa: PTH123 - of a descriptor
    except BaseException:
        os.close(fd)
        raise


def read(path: Path, limit: int) -> bytes:
    """Return the whole file. Raises NotSmall if it is longer than `limit` bytes, and what `opened` raises."""
    with opened(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise NotSmall(path, f"longer than {limit} bytes")
    return data

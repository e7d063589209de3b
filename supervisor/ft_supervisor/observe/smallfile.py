"""Small files that somebody else may have put there: read whole, and never longer than they should be."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class NotSmall(Exception):
    """What has the name is no file, or is too long; one line."""


def read(path: Path, limit: int) -> bytes:
    """All of it. Raises NotSmall beyond `limit` bytes, and for a pipe, device or folder, which is not waited for;
    OSError as open does. May hang for as long as the file system does."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotSmall(f"{path}: no regular file")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        raise NotSmall(f"{path}: longer than {limit} bytes")
    return data

"""`python -I -S disk.py MIN_FREE NODE RUN_FOLDER LOCAL_FOLDER`: the built-in health check of the two folders that a
node writes to, the run's and its own. 1 and a line if it fails.

Run by its path, and importing nothing of ours, so that it starts in milliseconds. Any of its calls may hang for as long
as the file system does.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def problem(folder: Path, min_free: int, node: str) -> str:
    """What is wrong with the folder: its file system has less than `min_free` bytes for us, or nothing can be written
    there. "" if nothing is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = os.statvfs(folder)
        # of one name for each node: a check that is killed in between leaves one file, not one each time
        _write(folder / f".disk.{node}")
    except OSError as error:
        return f"{folder} is not writable: {error.strerror}"
    free = found.f_bavail * found.f_frsize
    if free < min_free:
        return f"{folder} has {free / 2**20:.1f} MiB free, and needs {min_free / 2**20:.1f} MiB"
    return ""


def _write(path: Path) -> None:
    """Make a small file that reaches the disk, and remove it."""
    with suppress(FileNotFoundError):
        path.unlink()  # a check that was killed has left it, or another user something of that name
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(fd, b"x" * 4096)
            os.fsync(fd)
        finally:
            os.close(fd)  # NFS tells here at the latest
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


if __name__ == "__main__":
    _, min_free, node, run_folder, local_folder = sys.argv
    # of its own folder a node asks no more than that its workers can be started
    if reason := problem(Path(local_folder), 0, node) or problem(Path(run_folder), int(min_free), node):
        print(reason)
        raise SystemExit(1)

"""Makes the run's folder, or refuses one of another user, so that nothing in it is written through a link.

run_dir may be in a place where others can write, such as a sticky scratch folder, and the name of the run's folder can
be guessed from the queue. A user who makes that folder first could plant links at the names that we write to.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from ft_supervisor.process import atomic

_TODO = "remove it, or set run_dir to a folder that only you can write to"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotOurs(PermissionError):
    """Another user may have put anything into this folder."""

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(errno.EPERM, f"{folder} is refused: {problem}; {_TODO}")


def make(folder: Path, *below: str) -> Path:
    """Make the run's folder if it is missing, and the folders named `below` in it; return the last one. Other users
    cannot write to the folders that this makes.

    Raises NotOurs, and OSError. May hang for as long as the file system does.
    """
    if _is_of_one_job(folder):
        _make(folder.parent)
        _check_one(folder.parent)
    _make(folder)
    check(folder)
    if (found := folder.lstat()).st_mode & _OTHERS:  # ours, and made by another program under a generous umask
        folder.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    for name in below:
        folder /= name
        _make(folder)
    return folder


def check(folder: Path) -> None:
    """Check that the folder is ours and that no other user can replace it. Raises NotOurs, and OSError if it is
    missing."""
    _check_one(folder)
    if _is_of_one_job(folder):
        _check_one(folder.parent)
    _check_above(folder.parent.resolve())


def _is_of_one_job(folder: Path) -> bool:
    """Return whether run_dir ends in the job's id, as it does by default: then it is ours, and not a folder that users
    made."""
    return folder.parent.name == folder.name.partition(".")[0]


def _make(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o755)


def _check_one(folder: Path) -> None:
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise NotOurs(folder, "it is a link")
    if not stat.S_ISDIR(found.st_mode):
        raise NotOurs(folder, "it is no folder")
    if found.st_uid != os.geteuid() and not _is_ours_by_another_name(folder, found.st_uid):
        raise NotOurs(folder, f"it belongs to uid {found.st_uid}, and not to {os.geteuid()}")


def _is_ours_by_another_name(folder: Path, owner: int) -> bool:
    """Return whether a file that we make there gets this owner, too: NFS may map our uid (root_squash, idmapd)."""
    probe = folder / f".owner.{secrets.token_hex(8)}"
    try:
        fd = atomic.create(probe, 0o600)
    except OSError:
        return False
    try:
        return os.fstat(fd).st_uid == owner
    finally:
        os.close(fd)
        probe.unlink(missing_ok=True)


def _check_above(folder: Path) -> None:
    """Refuse a folder above `folder` that any user could have made, that any user may write to, and whose owner is
    neither root nor we. Raises NotOurs."""
    for above, around in zip([folder, *folder.parents], folder.parents, strict=False):
        found = above.stat()
        anyones = found.st_mode & stat.S_IWOTH and around.stat().st_mode & stat.S_IWOTH
        if anyones and found.st_uid not in (0, os.geteuid()):
            raise NotOurs(above, f"uid {found.st_uid} has made it, and anyone may write to it")

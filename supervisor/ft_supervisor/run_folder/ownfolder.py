"""The run's folder is made by us or refused, and nothing in it is written through a link.

run_dir may lie where others may write, such as a sticky scratch folder, and everybody who sees the queue knows what the
run's folder in it will be called. Whoever makes that folder first could plant links at the names that we write to.
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
    """Somebody else may have put anything into this folder."""

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(errno.EPERM, f"{folder} is refused: {problem}; {_TODO}")


def make(folder: Path, *below: str) -> Path:
    """The run's folder, made if missing, or the one of this name below it. Nobody else can write to what is made.

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
    """Whether it is ours, and nobody else can exchange it. Raises NotOurs, and OSError where it is not there."""
    _check_one(folder)
    if _is_of_one_job(folder):
        _check_one(folder.parent)
    _check_above(folder.parent.resolve())


def _is_of_one_job(folder: Path) -> bool:
    """Whether run_dir ends in the job's id, as it does by default, so that it is no folder of people's own."""
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
    """Whether what we make there belongs to this owner, too: NFS may call us by another uid (root_squash, idmapd)."""
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
    """A folder above that anyone could have made there, and lets anyone write to, belongs to root or us."""
    for above, around in zip([folder, *folder.parents], folder.parents, strict=False):
        found = above.stat()
        anyones = found.st_mode & stat.S_IWOTH and around.stat().st_mode & stat.S_IWOTH
        if anyones and found.st_uid not in (0, os.geteuid()):
            raise NotOurs(above, f"uid {found.st_uid} has made it, and anyone may write to it")

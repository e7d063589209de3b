"""Checks run_dir: it must be writable, fast enough, have room, and be the same folder for all nodes."""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.config import JobConfig
from ft_supervisor.daemon.files import SHARED_BOUND
from ft_supervisor.doctor.finding import Finding, fail, ok, warn
from ft_supervisor.process.background import Background, Hangs, wait_all

LEFT: set[Path] = set()
"""Files that exist now, for `clean_up`."""
BOUND = 15.0
"""Seconds to wait for the file server, for each of writing and removing a file."""
MOUNTS = Path("/proc/self/mountinfo")
SHARED = re.compile(
    r"nfs4?|lustre|gpfs|beegfs|ceph|cifs|smb3|9p|panfs|pvfs2|orangefs|afs|wekafs|fuse\.(ceph|glusterfs|sshfs|weka\w*|"
    r"juicefs|s3fs|gcsfuse|beegfs|lustre)"
)
LOCAL = re.compile(r"ext[234]|xfs|btrfs|tmpfs|ramfs|overlay|zfs|f2fs|vfat")


@dataclass(frozen=True)
class Marker:
    """A small file with `nonce` in it, which other nodes read.

    `took`: seconds for writing it to the disk; `offset`: seconds by which the file system's clock is ahead of ours;
    `free`: bytes; `kind`: the type of the file system.
    """

    path: Path
    nonce: str
    took: float
    offset: float
    free: int
    kind: str


@contextmanager
def marker(run_dir: Path) -> Iterator[Marker]:
    """Write a marker in run_dir, or in the nearest folder above that exists, so that no folder is made. Remove it
    afterwards.

    Raises OSError, and Hangs.
    """
    nonce = secrets.token_hex(8)
    made = Background(f"writing to {run_dir}", lambda: _make(run_dir, nonce)).result(BOUND)
    try:
        yield made
    finally:
        Background(f"removing {made.path}", lambda: _remove(made.path)).result(BOUND)


def _make(run_dir: Path, nonce: str) -> Marker:
    folder = nearest(run_dir)
    path = folder / f".ft-doctor.{socket.gethostname()}.{os.getpid()}.{nonce}"
    before = time.time()
    began = time.monotonic()
    LEFT.add(path)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, nonce.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        took = time.monotonic() - began
        found, room = path.stat(), os.statvfs(folder)
        return Marker(path, nonce, took, _outside(found.st_mtime, before, time.time()), room.f_bavail * room.f_frsize,
                      file_system(folder))  # fmt: skip
    except BaseException:
        with suppress(OSError):
            _remove(path)
        raise


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    LEFT.discard(path)


def clean_up() -> None:
    """Remove files of checks that were cut off, as far as the file server answers."""
    pieces = [Background(f"removing {path}", lambda path=path: _remove(path)) for path in tuple(LEFT)]  # type: ignore[misc]
    wait_all(pieces, SHARED_BOUND)


def _outside(stamp: float, before: float, after: float) -> float:
    """Return the seconds by which a time is outside of the two; below 0 when it is earlier."""
    return min(0.0, stamp - before) or max(0.0, stamp - after)


def nearest(folder: Path) -> Path:
    """Return the folder, or the first one above it that exists. Raises OSError."""
    for candidate in (folder, *folder.parents):
        try:
            if candidate.is_dir():
                return candidate
            candidate.lstat()
        except FileNotFoundError:
            continue
        raise NotADirectoryError(20, "is no folder", str(candidate))
    raise FileNotFoundError(2, "does not exist", str(folder))


def file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """Return the folder's file system type by mountinfo (proc(5)), such as nfs4; "" where mountinfo does not have
    it."""
    try:
        text = mounts.read_text(errors="replace")
    except OSError:
        return ""
    best, kind = "", ""
    resolved = folder.resolve()
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        if resolved.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind


def judge(made: Marker, run_dir: Path, config: JobConfig | None, nodes: int) -> list[Finding]:
    """Judge run_dir as this node sees it. `nodes`: the number of the job's nodes, 0 if unknown."""
    where = f"{run_dir} ({made.kind or 'of unknown type'})"
    text = f"{where} takes files, in {made.took:.2f} s"
    found = [ok("run_dir", text)]
    if made.took > SHARED_BOUND:
        todo = "decisions do not wait for it, but verdict and journals may come late or be missing"
        found = [warn("run_dir", f"{text}: no process waits longer than {SHARED_BOUND:g} s for it", todo)]
    if LOCAL.fullmatch(made.kind) and nodes != 1:
        text = f"{where} looks like this machine's own disk; run_dir must be shared by all nodes and the batch host"
        found.append(warn("run_dir shared", text, "name a folder on a shared file system"))
    elif SHARED.fullmatch(made.kind):
        found.append(ok("run_dir shared", f"{made.kind} is a shared file system"))
    least = config.settings.health.min_free if config is not None else None
    free = f"{made.free / 2**30:.1f} GiB free"
    if made.free < (least or 2**30):
        todo = "make room: health.disk needs it" if least else "make room"
        found.append(warn("run_dir space", f"{free} in {run_dir}", todo))
    else:
        found.append(ok("run_dir space", free))
    allowed = config.settings.health.clock_offset if config is not None else 1.0
    if abs(made.offset) > allowed:
        text = f"the file server's clock is {abs(made.offset):.1f} s {'ahead' if made.offset > 0 else 'behind'}"
        found.append(warn("run_dir clock", text, "check NTP; only times shown to people depend on it here"))
    return found


def unusable(run_dir: Path, error: OSError | Hangs) -> Finding:
    """Return the finding for a run_dir in which no file could be written."""
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return fail("run_dir", f"{run_dir}: {why}", "set run_dir to a shared folder that you can write to")

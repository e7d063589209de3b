"""Finds out whether the kernel killed a worker for want of memory, by the count of such kills in the worker's cgroup.

Version 2 counts in `memory.events` (oom_kill) of the victim's cgroup and of all above it, version 1 in
`memory.oom_control` (oom_kill, since Linux 4.13) of the victim's own alone. Both also count kills for want of memory on
the whole machine. The count moves before the victim gets its SIGKILL. See cgroups(7), proc(5), and cgroup-v2.rst of
Linux.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_LIMIT = 1 << 20
"""Bytes read of a file in /proc."""


class _Mount(NamedTuple):
    """A cgroup file system: the cgroup `root` is seen at `point`. `v2`, or version 1's memory controller."""

    root: PurePosixPath
    point: Path
    v2: bool


class Counter:
    """The count that grows if one process is killed for want of memory."""

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        self._count = count

    @staticmethod
    def open(pid: int) -> Counter | None:
        """Return the counter of a process that has just been started; None where no count can be read, and when the
        process is gone."""
        try:
            groups = _read(Path(f"/proc/{pid}/cgroup"))
            mounts = _read(Path("/proc/self/mountinfo"))
        except OSError:
            return None
        for path in count_files(groups, mounts):
            if (count := _count(path)) is not None:
                return Counter(path, count)
        return None

    def moved(self) -> bool:
        """Return whether any process in this cgroup has been killed for want of memory since `open`."""
        count = _count(self._path)
        return count is not None and count > self._count


def count_files(groups: str, mounts: str) -> list[Path]:
    """Return the files that may have the count, best first, from the texts of /proc/PID/cgroup and
    /proc/self/mountinfo.

    Version 1's memory controller counts only in the process's own cgroup; version 2 there and in all above, as the
    controller need not be enabled so far down.
    """
    known = [mount for line in mounts.splitlines() if (mount := _mount(line)) is not None]
    files = []
    for group, v2 in _groups(groups):
        for mount in known:
            if mount.v2 != v2:
                continue
            below = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
            own = mount.point / below
            above = [own, *own.parents][: len(below.parts) + 1]
            files += [folder / "memory.events" for folder in above] if v2 else [own / "memory.oom_control"]
    return files


def _groups(text: str) -> list[tuple[PurePosixPath, bool]]:
    """Return (cgroup, whether it is version 2's) where memory may be counted; a controller is in one of the two
    only."""
    found = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") or not controllers:
            found.append((PurePosixPath(path), not controllers))
    return sorted(found, key=lambda group: group[1])


def _mount(line: str) -> _Mount | None:
    before, _, after = line.partition(" - ")
    kind, _, options = after.split(" ", 2)
    if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
        root, point = (_unescaped(word) for word in before.split(" ")[3:5])
        return _Mount(PurePosixPath(root), Path(point), kind == "cgroup2")
    return None


def _unescaped(word: str) -> str:
    """Undo mountinfo's escapes, such as \\040 for a blank."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _count(path: Path) -> int | None:
    """Return the number after `oom_kill`; None where there is none."""
    try:
        found = re.search(r"^oom_kill (\d+)$", _read(path), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LIMIT).decode(errors="surrogateescape")

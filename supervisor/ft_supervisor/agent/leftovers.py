"""Looks from outside, in proc(5), whether a worker that has left its function has left anything of the cycle."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from ft_supervisor.process.tree import kill_group, living, stat, strike

_CONNECTED = {"01", "02"}
"""TCP_ESTABLISHED and TCP_SYN_SENT of the kernel's include/net/tcp_states.h. A connection that either end has shut
carries no data any more."""

Known = frozenset[tuple[int, int]]
"""Processes, by pid and start: see tree.Process."""


def beside(root: int, process: int) -> Known:
    """Return the processes below `root` that are neither `process` nor below it, such as a shell in between or a
    `tee`. Raises OSError."""
    if root == process:  # as a rule; a scan of /proc may take tens of milliseconds
        return frozenset()
    below = living(process)
    return frozenset((pid, each.start) for pid, each in living(root).items() if pid != process and pid not in below)


def strays(root: int, process: int, known: Known, kept: Collection[int]) -> str:
    """Return the processes that a worker has left, for people; "" if there are none. `root`: the process that
    the agent has started; `process`: the one that runs the function, `root` or below it. `known`: the processes beside
    it before. `kept`: those that may live, with all below them. Raises OSError."""
    found = living(process, kept)
    if root != process:
        below = living(process)
        for pid, each in living(root).items():
            if pid != process and pid not in below and (pid, each.start) not in known:
                found[pid] = each
    return ", ".join(f"{pid} ({each.name})" for pid, each in sorted(found.items()))


def connected_to(pid: int, port: int) -> bool:
    """Return whether this process has a TCP connection to this port, on whatever host."""
    inodes = _inodes(pid)
    for table in ("tcp", "tcp6"):
        with suppress(OSError):  # it has exited, or the kernel has no IPv6
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, _, remote, state, _, _, _, _, _, inode, *_ = line.split()
                if state in _CONNECTED and int(remote.rpartition(":")[2], 16) == port and inode in inodes:
                    return True
    return False


def _inodes(pid: int) -> set[str]:
    """Return the inodes of the process's sockets."""
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(entry.readlink()).partition(":")
                if kind == "socket":
                    found.add(inode.strip("[]"))
    return found


def kill_tree(pid: int) -> None:
    """SIGKILL to the process, its group, and everything below it. Raises OSError where /proc cannot be read."""
    try:
        if stat(pid) is not None:
            strike(pid, (), lambda: True)  # first: its children would be the agent's afterwards
    finally:
        kill_group(pid)

"""Looks from outside, in proc(5), whether a worker that has left its function has left anything of the cycle."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from ft_supervisor.process.tree import Process, kill_group, living, scan, stat, strike

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
    return frozenset((pid, each.start) for pid, each in _beside(scan(), root, process).items())


def _beside(processes: Mapping[int, Process], root: int, process: int) -> dict[int, Process]:
    if root == process:
        return {}
    below = living(process, (), processes)
    return {pid: each for pid, each in living(root, (), processes).items() if pid != process and pid not in below}


def strays(processes: Mapping[int, Process], root: int, process: int, known: Known, kept: Collection[int]) -> str:
    """Return which of the processes a worker has left, for people; "" if none. `root`: the process that the agent has
    started; `process`: the one that runs the function, `root` or below it. `known`: the processes beside it before.
    `kept`: those that may live, with all below them."""
    found = living(process, kept, processes)
    others = _beside(processes, root, process)
    found |= {pid: each for pid, each in others.items() if (pid, each.start) not in known}
    return ", ".join(f"{pid} ({each.name})" for pid, each in sorted(found.items()))


def connected_to(port: int, pids: Collection[int]) -> set[int]:
    """Return which of these processes have a TCP connection to this port; the host does not matter. The kernel takes
    milliseconds for the table of connections, so that it is read once for all that share a network namespace."""
    found, tables = set(), dict[str, set[str]]()
    for pid in pids:
        with suppress(OSError):  # it has exited
            namespace = str(Path(f"/proc/{pid}/ns/net").readlink())
            if namespace not in tables:
                tables[namespace] = _connections(pid, port)
            if not tables[namespace].isdisjoint(_sockets(pid)):
                found.add(pid)
    return found


def _connections(pid: int, port: int) -> set[str]:
    """Return the inodes of all connections to this port in the process's network namespace."""
    found, wanted = set(), f":{port:04X}"
    for table in ("tcp", "tcp6"):
        with suppress(OSError):  # it has exited, or the kernel has no IPv6
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines():
                if wanted in line:
                    _, _, remote, state, _, _, _, _, _, inode, *_ = line.split()
                    if remote.endswith(wanted) and state in _CONNECTED:
                        found.add(inode)
    return found


def _sockets(pid: int) -> set[str]:
    """Return the inodes of the process's sockets. Raises OSError."""
    found = set()
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

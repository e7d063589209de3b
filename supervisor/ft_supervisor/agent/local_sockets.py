"""Unix sockets that this node's workers talk to, and whether a process is one of a worker's."""

from __future__ import annotations

import os
import secrets
import socket
import struct
from pathlib import Path

from ft_supervisor.process.log import log
from ft_supervisor.process.tree import stat

_PATH = 107
"""Bytes of a socket's path, unix(7)."""
CREDENTIALS = struct.Struct("iII")
"""struct ucred of unix(7): pid, uid, gid."""
_DEPTH = 100
"""Generations between a worker and its descendants."""


def bind(sock: socket.socket, path: Path) -> tuple[str, Path | None]:
    """Bind the socket at `path`, in a folder that only we may enter, or by an abstract name (unix(7)) where no file can
    be made. Return what workers connect to, @NAME for an abstract one, and the file, if there is one. Raises OSError.
    """
    if _bound(sock, path):
        return str(path), path
    name = f"ft-supervisor-{secrets.token_hex(16)}"
    sock.bind(f"\0{name}")
    return f"@{name}", None


def _bound(sock: socket.socket, path: Path) -> bool:
    if len(os.fsencode(path)) > _PATH:
        return False
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        path.unlink(missing_ok=True)  # a killed agent's
        sock.bind(str(path))
    except OSError as error:
        log("notify_folder_failed", "warning", path=path, error=error)
        return False
    return True


def is_below(pid: int, worker: int | None) -> bool:
    """Return whether `pid` is `worker` or one of its descendants; False once either of them is gone."""
    return worker is not None and worker in ancestry(pid)


def ancestry(pid: int) -> list[int]:
    """Return `pid`, its parent, and so on, without init; shorter where one of them is gone."""
    found = [pid]
    while len(found) <= _DEPTH:
        try:
            process = stat(pid)
        except OSError:  # it cannot be read for want of a file descriptor
            break
        if process is None or process.parent <= 1:
            break
        found.append(pid := process.parent)
    return found

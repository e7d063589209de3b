"""Unix sockets that this node's workers talk to, and whether a process is one of a worker's."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from ft_supervisor.process.log import log

_PATH = 107
"""Bytes of a socket's path, unix(7)."""
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
            text = Path(f"/proc/{pid}/stat").read_bytes()
            pid = int(text[text.rindex(b")") + 2 :].split()[1])
        except (OSError, ValueError, IndexError):  # gone, perhaps while it was read
            break
        if pid <= 1:
            break
        found.append(pid)
    return found

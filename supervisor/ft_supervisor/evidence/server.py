"""Asks torch's worker server (torch/csrc/distributed/c10d/control_plane/WorkerServer.cpp), which worker_server.py has
started in a worker. Its record of collectives needs no GIL; its traceback does, and does not come while it is held.
"""

from __future__ import annotations

import http.client
import socket
import time
from pathlib import Path

TRACE, TRACEBACK = "fr_trace_json", "dump_traceback"
"""Handlers of the server."""
MOST = 32 << 20
"""Bytes of an answer that are read."""
WAITING = 3
"""Connections without an answer from which on a server is not asked for a traceback: more would use up its threads."""
_PIECE = 1 << 16
_CONNECTED = "03"


def unanswered(path: Path) -> int:
    """Return how many connections the server has that are not closed, by /proc/net/unix: nearly all of them wait for
    an answer. Each takes one of its 32 threads, for as long as the GIL is held."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return sum(line.endswith(f" {path}") and line.split()[5] == _CONNECTED for line in lines)


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket. `until`: monotonic clock."""

    def __init__(self, path: Path, until: float) -> None:
        super().__init__("worker")
        self._path = path
        self._until = until

    def connect(self) -> None:
        """Raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.bound()
        self.sock.connect(str(self._path))

    def bound(self) -> None:
        """Have the next call end in time."""
        assert self.sock is not None
        self.sock.settimeout(max(0.001, self._until - time.monotonic()))


def ask(path: Path, handler: str, until: float) -> bytes | None:
    """Return the answer of the server at `path`; None where there is none, or none until then (monotonic clock)."""
    connection = _Connection(path, until)
    try:
        connection.request("POST", f"/handler/{handler}")
        with connection.getresponse() as response:
            data = b""
            while len(data) < MOST and time.monotonic() < until and (piece := response.read(_PIECE)):
                data += piece
            return data if response.status == 200 and response.isclosed() else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()

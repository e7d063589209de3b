"""Messages to the agent's hang watch, by systemd's notify protocol (sd_notify(3))."""

from __future__ import annotations

import os
import socket

_socket: tuple[str, socket.socket] | None = None
_unwatched = 0


def notify(text: str) -> None:
    """Send a message, if there is a hang watch. It never waits."""
    global _socket
    name = os.environ.get("NOTIFY_SOCKET")
    if not name:
        return
    try:
        if _socket is None or _socket[0] != name:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            connection.connect("\0" + name[1:] if name.startswith("@") else name)
            _socket = (name, connection)
        _socket[1].send(text.encode(), socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass  # the agent does not read; the training goes on
    except OSError:
        _socket = None  # the agent is gone


class unwatched:  # it is used like a function
    """A section without a hang watch: `with unwatched(): download()`."""

    def __enter__(self) -> None:
        global _unwatched
        if not _unwatched:
            notify("WATCHDOG_USEC=0")
        _unwatched += 1  # last: Restart may be raised before, and then the section is not left either

    def __exit__(self, *_: object) -> None:
        global _unwatched
        _unwatched -= 1
        usual = os.environ.get("WATCHDOG_USEC")
        if not _unwatched and usual:
            notify(f"WATCHDOG_USEC={usual}")

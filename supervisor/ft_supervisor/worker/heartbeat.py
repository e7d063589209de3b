"""Heartbeats of the training, by systemd's notify protocol (sd_notify(3)), for the agent's hang watch."""

from __future__ import annotations

import os
import socket
import threading
import time

from .calls import progress
from .connection import OWN_THREADS

_socket: tuple[str, socket.socket] | None = None
_unwatched = 0
_automatic: threading.Thread | None = None
_pinged = False


def ping(step: int | None = None) -> None:
    """Send a heartbeat, from the loop that trains. The first one in each cycle reports progress: a cycle that fails
    before it is followed by new processes. `step` is shown as the worker's status. It takes some microseconds. Without
    a hang watch it reports progress only. The function is left here if its cycle has ended."""
    global _pinged
    _pinged = True
    _notify("WATCHDOG=1" if step is None else f"WATCHDOG=1\nSTATUS=step {step}")
    progress()


class unwatched:  # it is used like a function
    """A section without a hang watch: `with unwatched(): download()`."""

    def __enter__(self) -> None:
        global _unwatched
        _unwatched += 1
        if _unwatched == 1:
            _notify("WATCHDOG_USEC=0")

    def __exit__(self, *_: object) -> None:
        global _unwatched
        _unwatched -= 1
        usual = os.environ.get("WATCHDOG_USEC")
        if not _unwatched and usual:
            _notify(f"WATCHDOG_USEC={usual}")


def automatic_progress(interval: float = 1.0) -> None:
    """Send a heartbeat every `interval` seconds in which the main thread has executed bytecode, until the script's
    first `ping`. The hang watch then notices a call that does not return, but no endless loop in Python."""
    global _automatic
    if _automatic is None or not _automatic.is_alive():
        arguments = (interval,)
        _automatic = threading.Thread(target=_follow, args=arguments, daemon=True, name=f"{OWN_THREADS}-progress")
        _automatic.start()


def _follow(interval: float) -> None:
    """Send the heartbeats. It uses pending calls of the interpreter, as a signal's handler would also run while the
    main thread waits for a lock."""
    import ctypes

    ran = threading.Event()
    ran.set()

    def note(_: object) -> int:
        ran.set()
        return 0

    look = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(note)
    while not _pinged:
        if ran.is_set():
            ran.clear()
            _notify("WATCHDOG=1")
            while ctypes.pythonapi.Py_AddPendingCall(look, None):  # the interpreter's list is full
                time.sleep(interval / 10)
        time.sleep(interval)


def _notify(text: str) -> None:
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

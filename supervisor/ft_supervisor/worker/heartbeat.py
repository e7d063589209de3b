"""Heartbeats of the training, for the agent's hang watch."""

from __future__ import annotations

import threading
import time
from typing import Any

from .calls import progress
from .connection import OWN_THREADS
from .notify import notify

_automatic: threading.Thread | None = None
_pinged = False
_look: Any = None


def ping(step: int | None = None) -> None:
    """Send a heartbeat, from the loop that trains. The first one in each cycle reports progress: a cycle that fails
    before it is followed by new processes. `step` is shown as the worker's status. It takes some microseconds. Without
    a hang watch it reports progress only. The function is left here if its cycle has ended."""
    global _pinged
    _pinged = True
    notify("WATCHDOG=1" if step is None else f"WATCHDOG=1\nSTATUS=step {step}")
    progress()


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
    global _look
    import ctypes

    ran = True

    def note(_: object) -> int:
        nonlocal ran
        ran = True  # and no more: Restart may be raised in any Python function that is called from here
        return 0

    # kept for good: the main thread may come to a pending call only after this thread's end
    _look = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(note)
    while not _pinged:
        if ran:
            ran = False
            notify("WATCHDOG=1")
            while ctypes.pythonapi.Py_AddPendingCall(_look, None):  # the interpreter's list is full
                time.sleep(interval / 10)
        time.sleep(interval)

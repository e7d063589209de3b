"""Ends the process on an unforeseen exception in a thread.

Python prints a traceback and goes on without the thread. The process then seems to be well, but no longer receives, or
no longer reads its workers' output. A process that ends is replaced: a child by its daemon, a coordinator by another
candidate, a node by a spare.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ft_supervisor.process.log import current_traceback

FAILED = 70
"""The exit code if `end` itself fails (EX_SOFTWARE)."""
_NAME = 100
"""Characters of a thread's name."""


def guard(end: Callable[[str], object]) -> None:
    """End this process from now on at an exception that leaves any thread but the main one. `end` is called with one
    line about it, in that thread; it logs the line, leaves no process behind and does not return.

    Work that may fail without ending anything catches its own exceptions, logs them, and the process goes on without
    its result.
    """

    def failed(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else "?"
        try:
            end(current_traceback(f"thread {name[:_NAME]}: "))
        finally:
            os._exit(FAILED)

    threading.excepthook = failed

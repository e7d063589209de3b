"""What becomes of an exception that a thread has not foreseen.

Python prints a traceback and goes on without the thread: a process that is deaf, or whose workers' output nobody reads,
but seems to be well. One that ends is replaced: a child by its daemon, a coordinator by another candidate, a node by a
spare.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ft_supervisor.process.log import current_traceback

FAILED = 70
"""The exit code should `end` itself fail (EX_SOFTWARE)."""
_NAME = 100
"""Characters of a thread's name."""


def guard(end: Callable[[str], object]) -> None:
    """From now on an exception that leaves any thread but the main one ends this process. `end` is told of it in one
    line, in that thread; it logs it, leaves nothing behind and does not return.

    What may fail without ending anything catches its own exceptions, tells of them, and goes on without what it did.
    """

    def failed(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else "?"
        try:
            end(current_traceback(f"thread {name[:_NAME]}: "))
        finally:
            os._exit(FAILED)

    threading.excepthook = failed

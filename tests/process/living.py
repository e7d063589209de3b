"""Whether processes that may be no children of the test's own process live."""

import os
import select

from ft_supervisor.process.tree import stat

BOUND = 60.0
"""Seconds until a test gives up; nothing waits for it otherwise."""


def ended(pid: int, within: float = BOUND) -> bool:
    """Wait at most so long for the end of any process, and return whether it has ended; a zombie has."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(within * 1000))
    finally:
        os.close(fd)


def lives(pid: int) -> bool:
    """Return whether the process has not ended; a zombie has."""
    process = stat(pid)
    return process is not None and not process.dead

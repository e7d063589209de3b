"""The clock by which leases and fences are counted, and which gives the machines of the core their time."""

from __future__ import annotations

import time


def now() -> float:
    """Return the seconds since the machine's boot (clock_gettime(2), CLOCK_BOOTTIME).

    It moves while the machine is suspended, and while a virtual machine is paused if the host reports the pause. The
    clock of time.monotonic(), queues and polls stands still then: a node would rely on a lease that has long passed.
    The two must not be mixed.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)

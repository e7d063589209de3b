"""The clock by which leases and fences are counted, and so all that goes into the machines of the core."""

from __future__ import annotations

import time


def now() -> float:
    """Seconds since the machine's boot (clock_gettime(2), CLOCK_BOOTTIME).

    It moves while the machine is suspended, and while a virtual machine is paused where the host says so. The clock of
    time.monotonic(), queues and polls stands still then: a node would believe in a lease that has long passed. The two
    must not be mixed.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)

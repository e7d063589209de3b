"""`python -m ft_supervisor.process.guard AGENT`: the process beside the workers that ends them without a lease.

Its standard input is a timer (timerfd_create(2)) that AGENT, its parent, moves with each proof of the lease. It needs
nothing else of agent or daemon, which may both stand still. Whenever the timer has passed, every process below AGENT
except the guard itself gets SIGKILL. The guard dies with AGENT, as workers do.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress
from typing import NoReturn

from ft_supervisor.process import tree
from ft_supervisor.process.prctl import die_with_parent

_TIMER = 0
_AGAIN = 0.005
"""Seconds between two scans of /proc while there are still processes to kill."""
_LOOK = 0.5
"""Seconds between two scans of /proc when none is left: an agent that stood still while it started workers may go on to
start some more."""


def main() -> None:
    """Watch the timer of the agent. Returns only when the agent is dead already."""
    agent = int(sys.argv[1])
    if die_with_parent(agent):
        watch(agent, _TIMER)


def watch(agent: int, timer: int) -> NoReturn:
    """Sleep until the timer has passed, kill all processes below `agent`, and go on with that until the timer is
    moved."""
    poll = select.poll()
    poll.register(timer, select.POLLIN)
    while True:
        poll.poll()
        found = False
        with suppress(OSError):  # /proc could not be read for want of memory or file descriptors: look again
            found = tree.strike(agent, (os.getpid(),), lambda: bool(poll.poll(0)))
        time.sleep(_AGAIN if found else _LOOK)


if __name__ == "__main__":
    main()

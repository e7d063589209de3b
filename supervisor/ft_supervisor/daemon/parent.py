"""The process that has started this daemon, where the daemon is to end with it: `ft-supervisor local`.

A death signal would have to be SIGKILL, and would leave the detached processes of the workers behind. Instead the
parent holds one end of a pipe and its daemons inherit the other: the end of the pipe is the parent's death.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from ft_supervisor.process.prctl import wake_with_parent

FD_ENV = "FT_SUPERVISOR_PARENT_FD"
"""The environment variable in which a daemon finds its end's file descriptor."""


def take(environ: MutableMapping[str, str]) -> int | None:
    """Take the pipe's end out of the environment: readable once the parent is gone; None if no parent is to be watched.

    The kernel continues a stopped daemon when its parent dies, so that the daemon sees it.
    """
    fd = environ.pop(FD_ENV, "")
    if not fd.isdecimal():
        return None
    os.set_inheritable(int(fd), False)
    wake_with_parent()
    return int(fd)

"""The process that has started this daemon, where the daemon is to end with it: `ft-supervisor local`.

Not by a death signal, which would have to be SIGKILL: what the workers have detached would be left behind. The parent
holds one end of a pipe, whose other end its daemons inherit, and tells nothing but its death.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from ft_supervisor.process.prctl import wake_with_parent

FD_ENV = "FT_SUPERVISOR_PARENT_FD"
"""The environment variable in which a daemon finds its end's file descriptor."""


def take(environ: MutableMapping[str, str]) -> int | None:
    """The pipe's end, taken out of the environment: readable once the parent is gone; None where none is to be watched.

    A daemon that is stopped then goes on, to see it.
    """
    fd = environ.pop(FD_ENV, "")
    if not fd.isdecimal():
        return None
    os.set_inheritable(int(fd), False)
    wake_with_parent()
    return int(fd)

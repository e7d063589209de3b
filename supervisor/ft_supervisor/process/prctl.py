"""The two calls of prctl(2) that Python has no name for, and a command that uses one.

`python -I -S prctl.py PARENT COMMAND...`: become COMMAND, to be SIGKILLed when the process PARENT ends; stands in for
setpriv where that is too old. It is run by its path and imports nothing of this package, so that it works in any
environment that a worker may have.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int) -> bool:
    """Have the kernel send SIGKILL to this process when the thread that forked it ends. Return False when `parent` is
    not its parent any more."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def wake_with_parent() -> None:
    """Have the kernel send SIGCONT to this process when the thread that forked it ends, so that a stopped process goes
    on and notices."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def become_subreaper() -> None:
    """Make orphans below this process its children, instead of init's. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def main() -> None:
    """Become COMMAND; never returns. Exits like a shell: 127 if there is no such command, 126 if it can't be run."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if not die_with_parent(parent):
        raise SystemExit("the agent is gone; not starting " + command[0])
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        raise SystemExit(127 if isinstance(error, FileNotFoundError) else 126) from None


if __name__ == "__main__":
    main()

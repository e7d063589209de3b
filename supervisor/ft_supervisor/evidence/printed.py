"""Stacks that a worker prints itself, at a signal that it catches: faulthandler.register in the training script. It
prints them even while the GIL is held."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from ft_supervisor.evidence import kernel

BOUND = 0.6
"""Seconds for a process to print its stacks."""
_QUIET = 0.15
"""Seconds without more output after which they count as whole."""
_LOOK = 0.03

Since = Callable[[int], tuple[int, bytes]]
"""Returns a worker's output after so many bytes, as far as it is kept, and the position after it."""


def stacks(pid: int, name: str, since: Since, until: float) -> str | None:
    """Return what the process prints at the signal `name`, as in "SIGUSR2"; None if it does not catch it, or prints
    nothing until then (monotonic clock). No signal is sent for ""."""
    if not name or not kernel.catches(pid, number := signal.Signals[name]):
        return None
    begin, _ = since(sys.maxsize)
    try:
        os.kill(pid, number)
    except OSError:
        return None
    until, grown, position = min(until, time.monotonic() + BOUND), time.monotonic(), begin
    printed = b""
    while (now := time.monotonic()) < until and not (printed and now - grown > _QUIET):
        time.sleep(_LOOK)
        end, printed = since(begin)
        if end != position:
            grown, position = now, end
    return printed.decode(errors="replace") or None


def advice(name: str) -> str:
    """Return what to do for stacks, where there were none. `name`: the signal that was sent; "" if none was."""
    none = "No stacks: no worker server of torch, no py-spy that may look at this process"
    if not name:
        return f"{none}. Install py-spy."
    return (
        f"{none}, and it does not print them at {name}. "
        f"Install py-spy, or call faulthandler.register(signal.{name}, all_threads=True) in the script."
    )

"""Gets the main thread out of the function: a real-time signal whose handler raises Restart.

A signal also interrupts what waits in C: sleep, queues, locks, pipes. The handler asks in the main thread itself
whether the function runs, and never raises while a frame of this package does: so Restart cannot come after the
function, nor get lost on the way out of it.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from contextlib import suppress
from types import FrameType

SIGNAL = signal.SIGRTMIN + 6
_PACKAGE = f"{__package__}."


class Restart(BaseException):
    """The cycle has ended, and the function has to be left: let it pass. A function may raise it, too, which fails the
    cycle."""


class Leaving:
    """Whether the main thread must leave the function, and whether it may at this moment. Only the main thread writes
    the attributes, but for `due`."""

    def __init__(self) -> None:
        self.inside = False  # the main thread is in the function, or in a hook before it
        self.due = False  # the cycle has ended
        self.depth = 0  # atomic sections around the main thread's place
        self.free = threading.Event()  # no atomic section holds up the abort any more
        self._told = False

    def install(self) -> None:
        """Take SIGRTMIN+6. For the main thread. The handler stays for good: a late signal would kill the process."""
        if not self._has_signal() and signal.getsignal(SIGNAL) not in (signal.SIG_DFL, signal.SIG_IGN):
            warnings.warn(
                "SIGRTMIN+6 interrupts restartable functions: your handler of this signal is replaced",
                RuntimeWarning,
                stacklevel=2,
            )
        signal.signal(SIGNAL, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})

    def _has_signal(self) -> bool:
        return signal.getsignal(SIGNAL) == self._on_signal

    def _on_signal(self, _number: int, frame: FrameType | None) -> None:
        if frame is None or not str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
            self.check()

    def check(self) -> None:
        """Raise Restart if it is due here. For the main thread."""
        if self.due and self.inside and not self.depth:
            raise Restart("the cycle has ended")

    def interrupt(self) -> None:
        """Send the signal if the function runs. For other threads."""
        main = threading.main_thread().ident
        if self.inside and main is not None:
            if not self._has_signal():
                self._tell()
            signal.pthread_kill(main, SIGNAL)

    def _tell(self) -> None:
        """Tell once that the function has taken the signal, which only the main thread can change. No warning: an
        exception would end the thread."""
        if not self._told:
            self._told = True
            with suppress(OSError, ValueError, AttributeError):  # the script has closed or replaced it
                print(
                    "ft-supervisor: SIGRTMIN+6 has another handler since this restartable function was called: the "
                    "function cannot be interrupted, and is left at its next worker.ping()",
                    file=sys.stderr,
                    flush=True,
                )

    def begin(self) -> None:
        """A new cycle begins: nothing is due."""
        self.due = False
        self.free.clear()

    def left(self) -> None:
        """The main thread has left the function."""
        self.inside, self.depth = False, 0
        self.free.set()


LEAVING = Leaving()
"""The main thread's; there is one."""


def in_main_thread() -> bool:
    """Return whether the caller is the main thread."""
    return threading.get_ident() == threading.main_thread().ident


class atomic:  # it is used like a function
    """A section that is finished before the function is left, and before its process groups are aborted:
    `with atomic(): save()`. It cannot be entered once the cycle has ended, and has no effect in other threads than the
    main one. A section that takes longer than policy.timeouts.quiesce costs the process."""

    def __enter__(self) -> None:
        if in_main_thread():
            LEAVING.depth += 1
            if LEAVING.due and LEAVING.depth == 1:  # in this order: the aborting thread sets `due`, then reads depth
                self.__exit__(None)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if in_main_thread() and LEAVING.depth:
            LEAVING.depth -= 1
            if LEAVING.due and not LEAVING.depth:
                LEAVING.free.set()
                if kind is None:
                    LEAVING.check()

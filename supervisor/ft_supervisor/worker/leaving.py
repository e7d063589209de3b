"""Gets the main thread out of the function: a real-time signal whose handler raises Restart.

A signal also interrupts waits in C: sleep, queues, locks, pipes. The handler runs in the main thread, and raises only
while the function runs and no frame of this package does: so Restart cannot come after the function, nor get lost on
the way out of it.
"""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from types import FrameType

SIGNAL = signal.SIGRTMIN + 6
_PACKAGE = f"{__package__}."
_IMPORT_PATIENCE = 2.0
"""Seconds by which Restart waits for an import: a package whose import was cut short cannot be imported again."""


class Restart(BaseException):
    """Raised in the function when its cycle has ended: let it pass. A function may raise it, too, which fails the
    cycle."""


class Leaving:
    """Whether the main thread must leave the function, and whether it may at this moment. Only the main thread writes
    the attributes, but for `due`."""

    def __init__(self) -> None:
        self.inside = False  # the main thread is in the function, or in a hook before it
        self.due = False  # the cycle has ended
        self.depth = 0  # atomic sections around the main thread's place
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()  # filled once no atomic section holds up the abort
        self._import_until: float | None = None  # on the monotonic clock: when an import is cut short all the same
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
        if frame is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
            return
        if self.due and not (_imports(frame) and self._has_patience()):  # the signal comes again
            self.check()

    def _has_patience(self) -> bool:
        now = time.monotonic()
        self._import_until = self._import_until or now + _IMPORT_PATIENCE
        return now < self._import_until

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
        """Note that a new cycle begins, so that nothing is due."""
        self.due, self._import_until = False, None

    def enter(self) -> None:
        """The main thread is about to call the function. Raises Restart if its cycle has ended."""
        self._free = queue.SimpleQueue()  # the former one is filled, by the end of the function before this one
        self.inside = True
        self.check()

    def forked(self) -> None:
        """This is a forked child: it has nothing to leave. Another thread of the parent may have held the queue."""
        self.inside = self.due = False
        self._free = queue.SimpleQueue()

    def left(self) -> None:
        """Note that the main thread has left the function."""
        self.inside, self.depth = False, 0
        self._free.put(None)

    def section_ended(self) -> None:
        """The main thread has left an atomic section."""
        self.depth -= 1
        if self.due and not self.depth:
            # not an Event: its methods are Python functions, in which the handler would raise, with a lock taken
            self._free.put(None)

    def wait_until_left(self, seconds: float) -> None:
        """Return once the main thread has left the function, or after so many seconds. For the aborting thread."""
        if self.inside:
            with suppress(queue.Empty):
                self._free.get(timeout=seconds)

    def wait_for_section(self) -> None:
        """Wait until no atomic section holds up the abort. For the aborting thread."""
        if self.depth:
            self._free.get()


LEAVING = Leaving()
"""The only one, for the main thread."""


def _imports(frame: FrameType | None) -> bool:
    """Return whether `frame` runs below an import statement of the function."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


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
            LEAVING.section_ended()
            if kind is None:
                LEAVING.check()

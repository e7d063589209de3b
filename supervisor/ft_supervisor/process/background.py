"""Runs work that may hang, such as writing to NFS, in threads that can be abandoned. A process that uses it has to
leave by os._exit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Hangs(Exception):
    """The work was not done in time, and its thread is abandoned."""


class Background(Generic[T]):
    """One piece of work in a thread of its own, begun at once. `failed` is called with its error, in that thread."""

    def __init__(
        self, what: str, work: Callable[[], T], failed: Callable[[str, Exception], None] | None = None
    ) -> None:
        self.what = what
        self._work = work
        self._failed = failed
        self._result: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except Exception as error:
            self._error = error
            if self._failed is not None:
                self._failed(self.what, error)

    def wait(self, bound: float) -> bool:
        """Wait at most `bound` seconds. Return whether the work has ended, with a result or an error."""
        self._thread.join(max(0.0, bound))
        return not self._thread.is_alive()

    def result(self, bound: float) -> T:
        """Return or raise what the work returned or raised. Raises Hangs after `bound` seconds."""
        if not self.wait(bound):
            raise Hangs(f"{self.what}: not done after {bound:g} s")
        if self._error is not None:
            raise self._error
        return self._result[0]


def wait_all(pieces: list[Background[T]], bound: float) -> list[str]:
    """Wait at most `bound` seconds for all together. Return the names of those that are not done."""
    until = time.monotonic() + bound
    return [piece.what for piece in pieces if not piece.wait(until - time.monotonic())]

"""Work that may hang, such as writing to NFS, in threads that can be abandoned. Whoever uses it leaves by os._exit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Hangs(Exception):
    """The work was not done in time; its thread is abandoned."""


class Background(Generic[T]):
    """One piece of work in a thread of its own, begun at once. `failed` is told of its error, in that thread."""

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
        """Whether it is done, for better or worse, within `bound` seconds."""
        self._thread.join(max(0.0, bound))
        return not self._thread.is_alive()

    def result(self, bound: float) -> T:
        """What the work returned or raised; Hangs after `bound` seconds."""
        if not self.wait(bound):
            raise Hangs(f"{self.what}: not done after {bound:g} s")
        if self._error is not None:
            raise self._error
        return self._result[0]


def wait_all(pieces: list[Background[T]], bound: float) -> list[str]:
    """The names of those that are not done after `bound` seconds for all together."""
    until = time.monotonic() + bound
    return [piece.what for piece in pieces if not piece.wait(until - time.monotonic())]

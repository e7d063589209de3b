"""Runs work that may hang (a name look-up, a file on a dead NFS, a frozen store) in threads that can be left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from ft_supervisor.store.base import StoreLost

T = TypeVar("T")


class SingleFlight:
    """Runs one call per key at a time, each in a thread of its own; a key must always mean the same work.

    A caller that asks for a key whose call is running joins that call, so that a call that hangs is never doubled. For
    any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[object, Future[Any]] = {}

    def begin(self, key: object, work: Callable[[], T]) -> Future[T]:
        """Begin the call, or join the one that runs. A result for which no caller waits any more is dropped."""
        with self._lock:
            future: Future[T] | None = self._running.get(key)
            if future is None:
                future = Future()
                thread = threading.Thread(target=self._work, args=(key, work, future), daemon=True, name=f"step {key}")
                thread.start()
                self._running[key] = future
            return future

    def wait(self, key: object, work: Callable[[], T], bound: float, what: str) -> T:
        """Return or raise what the call does; raise StoreLost if it is not done within `bound` seconds."""
        try:
            return self.begin(key, work).result(bound)
        except TimeoutError:
            raise StoreLost(f"{what}: no answer within {bound:g} s") from None

    def _work(self, key: object, work: Callable[[], T], future: Future[T]) -> None:
        try:
            result = work()
        except StoreLost as error:
            self._forget(key)
            future.set_exception(
                type(error)(*error.args)
            )  # a copy: the frames of the original would keep the connection open
        except BaseException as error:  # raised again by the waiting caller
            self._forget(key)
            future.set_exception(error)
        else:
            self._forget(key)
            future.set_result(result)

    def _forget(self, key: object) -> None:
        with self._lock:
            del self._running[key]

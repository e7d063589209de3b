"""The interface of a store, for every implementation. No decisions here, and no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

DIGITS = 18
"""The largest value of a counter."""


class StoreLost(ConnectionError):
    """The connection to the store is lost for good: make a new one. Every error of a store is of this class."""


class HostSilent(StoreLost):
    """No port of this host answers, not even with a refusal: its other ports would not answer either."""


class Store(Protocol):
    """One connection to a store, for one thread at a time; `clone` returns another one.

    Every call may raise StoreLost. No call keeps a timeout against a frozen host (docs/internals/torch.md: a stopped
    server holds its callers until it goes on), so callers live in threads that can be abandoned. Values are bytes below
    8 MiB.
    """

    def push(self, queue: str, data: bytes) -> None:
        """Append to a queue. Not acknowledged."""

    def pop(self, queue: str, timeout: float) -> bytes | None:
        """Take and return the first of a queue, waiting `timeout` seconds for it (0: not at all); None when nothing
        came."""

    def get(self, key: str) -> bytes | None:
        """Return the key's value, at once and in one round trip; None when there is no such key. Not for queues."""

    def set(self, key: str, data: bytes) -> None:
        """Write the key. Not acknowledged."""

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Write `desired` if the key's value is `expected`, and return its value afterwards. b"" means no such key."""

    def counters(self, keys: Sequence[str]) -> list[int]:
        """Return the decimal numbers in these keys, 0 for one that is missing or has none. One round trip for keys that
        were read before. Not for keys whose absence means something: a missing one may get the value 0."""

    def clone(self) -> Self:
        """Return a second connection to the same store."""


def number(data: bytes) -> int:
    """Return the number in a counter; 0 for no number, or for one beyond what any counter of ours reaches."""
    try:
        return int(data) if len(data) <= DIGITS else 0
    except ValueError:
        return 0

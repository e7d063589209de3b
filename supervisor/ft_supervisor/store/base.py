"""What the rest may ask of a store, whoever keeps it. No decisions here, and no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

DIGITS = 18
"""Of a counter, at most."""


class StoreLost(ConnectionError):
    """The connection to the store is gone for good: make a new one. Every error of a store is one of these."""


class HostSilent(StoreLost):
    """Nothing at all answers at this address, not even to refuse: other ports of the host would not answer either."""


class Store(Protocol):
    """One connection to a store; for one thread at a time, `clone` gives another one.

    Every call may raise StoreLost. No call keeps a timeout against a frozen host (docs/internals/torch.md: a stopped
    server holds its callers until it goes on), so callers live in threads that can be abandoned. Values are bytes below
    8 MiB.
    """

    def push(self, queue: str, data: bytes) -> None:
        """Append to a queue. Not acknowledged."""

    def pop(self, queue: str, timeout: float) -> bytes | None:
        """Take the first of a queue, waiting `timeout` seconds for it (0: not at all); None when nothing came."""

    def get(self, key: str) -> bytes | None:
        """What the key holds, at once and in one round trip; None when there is no such key. Never ask for a queue."""

    def set(self, key: str, data: bytes) -> None:
        """Write the key. Not acknowledged."""

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Write `desired` if the key holds `expected`; what it holds afterwards. b"" is the same as no such key."""

    def counters(self, keys: Sequence[str]) -> list[int]:
        """The decimal numbers in these keys, 0 for one that is missing or holds none; one round trip for keys asked for
        before. Not for keys whose absence means something: a missing one may come to hold a 0."""

    def clone(self) -> Self:
        """A second connection to the same store."""


def number(data: bytes) -> int:
    """The number in a counter; 0 when it is none, or one that no counter of ours comes to."""
    try:
        return int(data) if len(data) <= DIGITS else 0
    except ValueError:
        return 0

"""Joins node names to the arguments of a command."""

from collections.abc import Iterator, Sequence

LONGEST = 100_000
"""Characters of one argument; Linux takes 131,071."""


def batches(names: Sequence[str], longest: int = LONGEST) -> Iterator[str]:
    """Yield the names, separated by commas, in as few arguments of at most `longest` characters as possible."""
    batch: list[str] = []
    length = 0
    for name in names:
        if batch and length + len(name) + 1 > longest:
            yield ",".join(batch)
            batch, length = [], 0
        batch.append(name)
        length += len(name) + 1
    if batch:
        yield ",".join(batch)

"""Words for people about workers: the one form in which a worker is named, and the sentence about its failure. Pure.

A worker is `rank 5 (gpu-a17, local 1)` wherever a person reads of it. Failures stay data until their text is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ft_supervisor.core.protocol.model import AGENT_RANK, Failure
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.words import one_line

_LAST_LINE = 200
"""Characters of a worker's last line in its failure's sentence."""


def worker(rank: int | None, node: str, local_rank: int) -> str:
    """Return `rank 5 (gpu-a17, local 1)`, `a worker (gpu-a17, local 1)` if its rank is not known, and
    `the agent of gpu-a17` for AGENT_RANK. `node`: the node's name."""
    if local_rank == AGENT_RANK:
        return f"the agent of {node}"
    who = "a worker" if rank is None else f"rank {rank}"
    return f"{who} ({node}, local {local_rank})"


def ranks(numbers: Iterable[int]) -> str:
    """Return `rank 5`, or `ranks 4-5,9`, in rising order."""
    rising = sorted(set(numbers))
    return f"{'rank' if len(rising) == 1 else 'ranks'} {format_ranks(rising)}"


def ranks_of_node(group_rank: int, per_node: int) -> range:
    """Return the ranks of a node's workers."""
    return range(group_rank * per_node, (group_rank + 1) * per_node)


def workers_of_node(group_rank: int, per_node: int, node: str) -> str:
    """Return all workers of a node: `ranks 4-7 (gpu-a17)`, or `rank 4 (gpu-a17, local 0)` if there is one."""
    if per_node == 1:
        return worker(group_rank, node, 0)
    return f"{ranks(ranks_of_node(group_rank, per_node))} ({node})"


def sentence(failure: Failure, node: str) -> str:
    """Return who has failed and what it said, in one line: `rank 2 (n3, local 0): ValueError: loss is nan`,
    `rank 2 (n3, local 0) was killed by SIGKILL`. `node`: the node's name."""
    how, said = _how(failure), what_it_said(failure)
    return f"{worker(failure.rank, node, failure.local_rank)}{how and f' {how}'}{said and f': {said}'}"


def what_it_said(failure: Failure) -> str:
    """Return the failure's message; for an exit without one the last line that the worker printed; "" for nothing."""
    if failure.message or failure.exit_code is None:
        return failure.message
    return one_line(failure.last_lines.rpartition("\n")[2], _LAST_LINE)


def _how(failure: Failure) -> str:
    """Return how the worker ended; "" if its message is an exception, which says enough."""
    if failure.cause is Cause.HANG:
        return "hangs"
    memory = "ran out of memory and " if failure.cause is Cause.OOM else ""
    if failure.signal:
        return f"{memory}was killed by {failure.signal}"
    if failure.lives or (failure.exit_code in (None, 1) and failure.message and not memory):
        return ""
    return f"{memory}exited with {failure.exit_code}"

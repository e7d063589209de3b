"""The file in a node's own folder in which its agent notes the rank of each worker, by pid.

/proc/PID/environ does not tell: a worker that was started ahead of its cycle has no RANK there, one may write over it,
and a process that a worker has left behind has the worker's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ft_supervisor.process import atomic

_NAME = "worker-ranks.json"


def path(folder: Path) -> Path:
    """Return the file's place."""
    return folder / _NAME


def write(folder: Path, ranks: Mapping[int, int]) -> None:
    """Note the ranks of the present workers, by pid. Raises OSError."""
    atomic.replace(path(folder), json.dumps(ranks).encode())


def read(folder: Path) -> dict[int, int]:
    """Return the ranks of the present workers, by pid; none while no cycle runs."""
    try:
        return {int(pid): int(rank) for pid, rank in json.loads(path(folder).read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}

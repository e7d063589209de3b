"""What rendezvous.py tells joiner.py: a module of its own, because joiner.py loads torch."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

from ft_supervisor.core.model import Job

RUN_ID = "1.0.0"
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Task:
    """Be the agents `ranks` of `size` at the store that listens on `port`; `ours` or torch's c10d rendezvous."""

    ours: bool
    ranks: list[int]
    size: int
    port: int


def job(size: int, port: int, folder: str) -> Job:
    """A job without spares of so many nodes, all of them on this machine."""
    names = tuple(f"node{rank}" for rank in range(size))
    return Job(
        run_id=RUN_ID,
        nodes=names,
        hosts=(HOST,),
        ports=(port,),
        run_folder=f"{folder}/run",
        local_folder=f"{folder}/local",
        active=size,
        per_node=1,
        command=("true",),
    )


def command(task: Task) -> list[str]:
    """The command line of joiner.py."""
    return [sys.executable, "-P", "-m", "ft_bench.joiner", json.dumps(asdict(task))]

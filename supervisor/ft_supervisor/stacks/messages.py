"""The messages between the shell and its executors, one JSON object a line (core.protocol.codec)."""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.protocol.evidence import Digest

MAX_BYTES = 2 << 20
"""The longest line: the stacks of one worker."""


@dataclass(frozen=True)
class Ask:
    """Asks for the evidence of this job's workers on the executor's machine. None: of any step, of any restart; the
    stacks of all ranks. The digests of all are told."""

    job_id: int
    step_id: int | None = None
    restart_count: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Told:
    """One worker. `text`: its stacks, "" if they were not asked for."""

    run_id: str
    node: str
    rank: int
    digest: Digest
    text: str = ""


@dataclass(frozen=True)
class NodeDone:
    """A node has told all. `workers`: how many, and so 0 for a spare."""

    run_id: str
    node: str
    workers: int

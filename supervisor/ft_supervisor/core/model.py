"""The nouns that every part shares: cycles, verdicts, failures, timeouts, the job and a node's identity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

KILL_BOUND = 1.0
"""Seconds from SIGKILL until no process of a node's workers is left, as the inequalities of the timeouts assume."""

TERM = 0
"""The only coordinator's, until takeover makes it grow."""

PROTOCOL = 1
"""Version of what is said through the store and over the links; different versions do not talk."""


@dataclass(frozen=True, order=True)
class Cycle:
    """One incarnation of the training world; a restart is a new cycle. Ordered as the pair (term, n)."""

    term: int
    n: int

    def __str__(self) -> str:
        return f"{self.term}.{self.n}"


class Outcome(StrEnum):
    """How a job can end."""

    SUCCESS = "success"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


EXIT_CODES = {Outcome.SUCCESS: 0, Outcome.FAILED: 1, Outcome.INTERRUPTED: 75, Outcome.CANCELLED: 130}
CONFIG_ERROR = 2
INTERRUPTED = EXIT_CODES[Outcome.INTERRUPTED]


@dataclass(frozen=True)
class Verdict:
    """How the job ended, once and for all; `reason` is one line."""

    outcome: Outcome
    reason: str

    @property
    def exit_code(self) -> int:
        """The code with which every daemon that knows this verdict leaves."""
        return EXIT_CODES[self.outcome]


@dataclass(frozen=True)
class Failure:
    """One failed worker. `time` is seconds since the epoch by the failing node's clock: for people, never compared."""

    infra_rank: int
    local_rank: int
    exit_code: int | None = None
    signal: str | None = None
    error_file: str | None = None
    message: str = ""
    time: float = 0.0

    def __str__(self) -> str:
        how = f"killed by {self.signal}" if self.signal else f"exit code {self.exit_code}"
        return f"worker {self.local_rank} of node {self.infra_rank}: {how}" + (
            f" ({self.message})" if self.message else ""
        )


@dataclass(frozen=True)
class Timeouts:
    """All in seconds. What each bounds is in the README; `config.relations` checks how they relate."""

    heartbeat: float = 0.5
    coordinator: float = 1.5
    fence: float = 5.0
    node_lost: float = 6.5
    probe: float = 0.5
    agent: float = 3.0
    restart_grace: float = 2.0
    stop_grace: float = 30.0
    join: float = 600.0
    exit_barrier: float = 300.0
    close_grace: float = 3.0


@dataclass(frozen=True)
class Node:
    """Who a node is, for the job's life. `addr` is what peers connect to; `domain_id` is "" where there is none."""

    infra_rank: int
    name: str
    addr: str
    domain_id: str = ""


@dataclass(frozen=True)
class Job:
    """What the processes of one node must know of the job: configuration and Slurm's environment, boiled down.

    `nodes` are Slurm's names by infra_rank. `hosts` are the addresses of the candidates' stores by infra_rank, with
    "" where only the address file can tell, and `ports` the ports to try there, in this order.
    `run_folder` is shared between nodes, `local_folder` is this node's own; both absolute.
    `signal_workers` says that this job's daemon passes SIGTERM on to workers (there is no Slurm that does it).
    """

    run_id: str
    nodes: tuple[str, ...]
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    run_folder: str
    local_folder: str
    active: int
    per_node: int
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    max_restarts: int = 10
    timeouts: Timeouts = Timeouts()
    signal_workers: bool = False
    nonce: str = ""


@dataclass(frozen=True)
class Memory:
    """What a node's daemon keeps for it while agents come and go."""

    newest: Cycle | None = None
    succeeded: Cycle | None = None
    failures: tuple[Failure, ...] = ()
    verdict: Verdict | None = None

    def newer(self, other: Self) -> Self:
        """The one of the two that knows the newer cycle, with the verdict of either: a memory only ever grows."""
        newest = other if (other.newest or Cycle(-1, -1)) >= (self.newest or Cycle(-1, -1)) else self
        return replace(newest, verdict=self.verdict or other.verdict)


def one_line(text: str, limit: int = 500) -> str:
    """`text` with every run of white space as one blank, at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"

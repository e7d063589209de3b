"""The messages between the shell and its executors, one JSON object a line (core.protocol.codec), and their
refusals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ft_supervisor.core.protocol.model import CONFIG_ERROR, INTERRUPTED

MAX_BYTES = 1 << 20
"""The longest line: a node of thousands of processes."""


class Verb(StrEnum):
    """What a fault does. HEAL ends a cut; it is never asked for."""

    KILL = "kill"
    FREEZE = "freeze"
    THAW = "thaw"
    CUT = "cut"
    HEAL = "heal"


class Target(StrEnum):
    """What a fault hits. NODE: the daemon and everything below it. ANY: one of the others, drawn by a schedule."""

    WORKER = "worker"
    AGENT = "agent"
    COORDINATOR = "coordinator"
    DAEMON = "daemon"
    NODE = "node"
    ANY = "any"


# -- to an executor


@dataclass(frozen=True)
class Look:
    """Asks which processes of this job's runs are here. None: of any step, of any restart."""

    job_id: int
    step_id: int | None = None
    restart_count: int | None = None


@dataclass(frozen=True)
class Hit:
    """Asks for one fault. `rank`: of the worker, None for other targets. `seconds`: how long a freeze or a cut lasts.

    `seed`: of the schedule that this is part of.
    """

    run_id: str
    node: str
    verb: Verb
    target: Target
    rank: int | None = None
    seconds: float | None = None
    seed: int | None = None


# -- from an executor


@dataclass(frozen=True)
class Worker:
    """`rank` is the global one; None when it cannot be read: some programs write over their environment."""

    rank: int | None
    pid: int


@dataclass(frozen=True)
class Seen:
    """A living daemon of ours and what runs below it; pids, None for what does not run.

    `allowed`, `run_folder` and `step_file` are what the daemon itself has begun with. `local`: the run of an
    `ft-supervisor local`. `in_charge`: the term in which this node's coordinator is.
    """

    run_id: str
    node: str
    allowed: bool
    local: bool
    run_folder: str
    step_file: str
    daemon: int
    agent: int | None
    coordinator: int | None
    in_charge: int | None
    workers: tuple[Worker, ...]


@dataclass(frozen=True)
class Act:
    """Something that was done. `time`: UTC, for people and for the report. `pids`: those that were hit."""

    time: str
    act: Verb
    target: Target
    node: str
    pids: tuple[int, ...]
    rank: int | None = None
    seconds: float | None = None
    seed: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Refusal:
    """Nothing was done; `text` says why. `code`: the tool's exit code."""

    code: int
    text: str


TO_EXECUTOR = (Look, Hit)
FROM_EXECUTOR = (Seen, Act, Refusal)
Answer = Seen | Act | Refusal

# -- refusals


class FaultError(Exception):
    """Nothing was done; one line says why."""

    code = INTERRUPTED
    """There was no answer in time, for example: trying again may help."""


class Wrong(FaultError):
    """This cannot be asked for."""

    code = CONFIG_ERROR


class NotThere(FaultError):
    """There is no such job, node or process."""

    code = 3


class JobOver(NotThere):
    """The job has ended."""


class NotAllowed(FaultError):
    """The job belongs to another user, or its policy or the system forbids the fault."""

    code = 4


def error(refusal: Refusal) -> FaultError:
    """Return the exception for a refusal of an executor."""
    kind = next((kind for kind in (Wrong, NotThere, NotAllowed) if kind.code == refusal.code), FaultError)
    return kind(refusal.text)

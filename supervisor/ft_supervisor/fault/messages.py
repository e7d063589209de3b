"""What the shell and its hands say to one another, one JSON object a line (core.codec), and how they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ft_supervisor.core.model import CONFIG_ERROR, INTERRUPTED

MAX_BYTES = 1 << 20
"""The longest line: a node of thousands of processes."""


class Verb(StrEnum):
    """What is done. HEAL ends a cut; it is never asked for."""

    KILL = "kill"
    FREEZE = "freeze"
    THAW = "thaw"
    CUT = "cut"
    HEAL = "heal"


class Target(StrEnum):
    """To what. NODE: the daemon and everything below it. ANY: one of the others, drawn by a schedule."""

    WORKER = "worker"
    AGENT = "agent"
    COORDINATOR = "coordinator"
    DAEMON = "daemon"
    NODE = "node"
    ANY = "any"


# -- to a hand


@dataclass(frozen=True)
class Look:
    """Say what is here of this job's runs. None: whichever step, whichever restart."""

    job_id: int
    step_id: int | None = None
    restart_count: int | None = None


@dataclass(frozen=True)
class Hit:
    """Do it. `rank`: of the worker, None for other targets. `seconds`: how long a freeze or a cut lasts.

    `seed`: of the schedule that this is part of.
    """

    run_id: str
    node: str
    verb: Verb
    target: Target
    rank: int | None = None
    seconds: float | None = None
    seed: int | None = None


# -- from a hand


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
class Sorry:
    """Why not; `code` is the tool's exit code."""

    code: int
    text: str


TO_HAND = (Look, Hit)
FROM_HAND = (Seen, Act, Sorry)
Answer = Seen | Act | Sorry

# -- refusals


class FaultError(Exception):
    """Nothing was done; one line says why."""

    code = INTERRUPTED
    """Nobody answers in time, say: trying again may help."""


class Wrong(FaultError):
    """This cannot be asked for."""

    code = CONFIG_ERROR


class NotThere(FaultError):
    """There is no such job, node or process."""

    code = 3


class JobOver(NotThere):
    """There was one."""


class NotAllowed(FaultError):
    """Somebody else's job, or the policy says no, or the system does."""

    code = 4


def error(sorry: Sorry) -> FaultError:
    """The refusal that a hand has told of."""
    kind = next((kind for kind in (Wrong, NotThere, NotAllowed) if kind.code == sorry.code), FaultError)
    return kind(sorry.text)

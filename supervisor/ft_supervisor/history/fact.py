"""Facts of a run's history, each taken from one line of a journal: the types, and helpers that read dumped values."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from types import NoneType
from typing import Any

from ft_supervisor.core.protocol.codec import from_plain, to_plain
from ft_supervisor.core.protocol.evidence import Explanation
from ft_supervisor.core.protocol.model import Failure, Verdict
from ft_supervisor.core.protocol.signs import Sign

_CYCLE = re.compile(r"([0-9]{1,15}\.[0-9]{1,15})?", re.ASCII)
LATEST = 1e11
"""Seconds since the epoch: in the year 5138. A line with a later time is damaged."""


class FactKind(StrEnum):
    """What happened. The comments name the journal that records it, and the fields that such a fact has."""

    # From a coordinator's journal, about the coordinator itself: `node` is its own.
    TOOK_CHARGE = auto()
    """`takeover`"""
    STEPPED_DOWN = auto()

    # From a coordinator's journal, about `node`.
    NODE_REGISTERED = auto()
    NODE_LOST = auto()
    """`at`: when the node was last heard; `noticed`: when the coordinator declared it lost."""
    NODE_UNHEALTHY = auto()
    NODE_LEFT = auto()
    WORKERS_STOPPED = auto()
    WORKERS_SUCCEEDED = auto()

    TRAINING = auto()
    """The node's workers have given a sign of training. `at`: when it came; `sign`, `started`, `signed`"""

    HANG_NOTICED = auto()
    """`failures`, of which not all are to blame."""

    # From a coordinator's journal, about a cycle or the run.
    CYCLE_KNOWN = auto()
    """A node has registered that took part in this cycle, which a former coordinator began. `group`"""
    NODES_EXCLUDED = auto()
    """A former coordinator's rules have excluded the nodes in `group`."""
    CYCLE_BEGAN = auto()
    """`group`, `choice`, `excluded`"""
    CYCLE_FAILED = auto()
    FIRST_FAILURE = auto()
    HANG_EXPLAINED = auto()
    """`node`: the culprits', None if they are on several or are not known; `explanation`"""
    DECIDED = auto()
    """`rule`, `response`, `how`, `why`, `budget`"""
    STEP_READ = auto()
    """The newest cycle has failed. `step`: of the newest checkpoint; `saved`: when it was written."""
    VERDICT_PROPOSED = auto()
    VERDICT_CLOSED = auto()

    # From an agent's journal, about its own node.
    CONNECTED = auto()
    DISCONNECTED = auto()
    STANDBY = auto()
    WORKERS_STARTED = auto()
    WORKERS_MADE = auto()
    """`made`"""
    ALL_BEAT = auto()
    """Each worker of the node has sent its first heartbeat."""
    WORKERS_GONE = auto()
    AGENT_ENDS = auto()

    # From either journal.
    WORKERS_EXITED = auto()
    """With `failures`, or with success where there are none."""


@dataclass(frozen=True, slots=True)
class RunFact:
    """One fact. `at` and `noticed` are seconds since the epoch. `node` is an infra_rank, None for a fact about no
    single node. `term` is the coordinator's; facts from agents have none. `cycle` is TERM.N. `cause`: a
    core.protocol.settings.Cause, "growth", or "" for none. `rule`, `response`, `how`, `why`: those of a decision;
    `budget`: how often its rule has answered, and may.
    `excluded`: the nodes that rules had excluded when a cycle began; `choice`: why its nodes were chosen. `made`: how
    many of a node's workers went on in process, were warm, and were cold. `sign`: of training; `started`, `signed`:
    when the node had started its workers, and gave the sign. `explanation`: of a hang. `step`, `saved`: see STEP_READ.

    Raises ValueError if a value cannot be a number, a time or a cycle."""

    at: float
    kind: FactKind
    term: int | None = None
    node: int | None = None
    cycle: str = ""
    group: tuple[int, ...] = ()
    reason: str = ""
    noticed: float | None = None
    failures: tuple[Failure, ...] = ()
    verdict: Verdict | None = None
    cause: str = ""
    rule: str = ""
    response: str = ""
    excluded: tuple[int, ...] = ()
    choice: str = ""
    takeover: bool = False
    how: str = ""
    why: str = ""
    budget: tuple[int, int] | None = None
    made: tuple[int, int, int] | None = None
    sign: Sign | None = None
    explanation: Explanation | None = None
    started: float = 0.0
    signed: float = 0.0
    step: int | None = None
    saved: float | None = None

    def __post_init__(self) -> None:
        whole = all(type(each) in (int, NoneType) for each in (self.term, self.node))
        times = [self.at] if self.noticed is None else [self.at, self.noticed]
        if not whole or not all(0 <= at < LATEST for at in times) or not _CYCLE.fullmatch(self.cycle):
            raise ValueError(f"no fact: {self}")


@dataclass
class JournalFacts:
    """The contents of one journal. `node`: the infra_rank of the node that wrote it. `nodes`: the names of the job's
    nodes by infra_rank; `rules`: the place of each rule, as FILE:LINE; `budgets`: how often each may answer. `name`:
    the job's, as configured. `gpus`: those of nodes, by infra_rank, that have told a coordinator. `first`: when
    the node began to look for its first coordinator, else when the journal begins; `last`: the time of the last line;
    both in seconds since the epoch. `torn`: number of incomplete lines; `strange`: number of lines that make no sense;
    `full`: the journal reached its bound; `problem`: why the rest could not be read."""

    machine: str = ""
    run_id: str = ""
    node: int | None = None
    nodes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    budgets: tuple[int, ...] = ()
    name: str = ""
    per_node: int | None = None
    active: int | None = None
    gpus: dict[int, int] = field(default_factory=dict)
    first: float | None = None
    last: float | None = None
    facts: list[RunFact] = field(default_factory=list)
    torn: int = 0
    strange: int = 0
    full: bool = False
    problem: str = ""
    checkpoints: list[tuple[int, float]] = field(default_factory=list)
    """(step, written) of those that a coordinator in charge has seen."""
    beats: list[array[float]] = field(default_factory=list)
    """Times of the heartbeats of local rank 0, in seconds since the epoch, if they are wanted; between two parts some
    may be missing."""


# -- helpers for dumped values


def cycle_text(value: Any) -> str:
    """Return a dumped Cycle as TERM.N."""
    return f"{int(value['term'])}.{int(value['n'])}"


def rank_of(message: dict[str, Any]) -> int:
    """Return the infra_rank of the node that sent the message."""
    return int(message["node"]["infra_rank"] if "node" in message else message["infra_rank"])


def announced(actions: list[Any]) -> list[dict[str, Any]]:
    """Return the announced facts among these dumped actions, each with its `type`."""
    return [action["fact"] for action in actions if action["type"] == "Announce"]


def cause_of(fact: dict[str, Any]) -> str:
    """Return the cause of a dumped CycleFailed or Decided: a core.protocol.settings.Cause, "growth", or "" for none."""
    return "growth" if fact["growth"] else str(fact["cause"] or "")


def failures_of(value: dict[str, Any]) -> tuple[Failure, ...]:
    """Return value["failures"], with the fields that this version has. `time` is 0 where it is not known."""
    return tuple(failure_of(each) for each in value["failures"])


def failure_of(value: dict[str, Any]) -> Failure:
    """Return one dumped Failure, with the fields that this version has. `time` is 0 where it is not known."""
    plain = to_plain(Failure(0, 0))
    found: Failure = from_plain(plain | {name: part for name, part in value.items() if name in plain}, Failure)
    return found if 0 <= found.time < LATEST else replace(found, time=0.0)

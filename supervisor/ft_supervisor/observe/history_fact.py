"""What is known of a run's history: facts, each from one line of a journal. Types, and what they are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any

from ft_supervisor.core.codec import from_plain, to_plain
from ft_supervisor.core.model import Failure, Verdict

_CYCLE = re.compile(r"([0-9]{1,15}\.[0-9]{1,15})?", re.ASCII)
LATEST = 1e11
"""Seconds since the epoch: in the year 5138. What claims to be later is damaged."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that `node` (an infra_rank; None: the coordinator says it) did at `at`. `what` is one of

    in_charge, stepped_down                         of a coordinator; `node` is its own
    registered, lost (`at`: when it was last heard, `told`: when that was noticed),
    unhealthy, left, stopped, succeeded             of a node, told by a coordinator
    known (`group`)                                 a cycle that was there already
    excluded (`group`)                              nodes that a former coordinator's rule has excluded
    began, failed, first_failure, decided, proposed, verdict      of a cycle or the run
    connected, disconnected, standby, run, beats, exited, gone, ends    of a node, told by its agent

    `term` is that of the coordinator; an agent's facts have none. `data`: what else its line says. Raises ValueError
    for what can be no number, time or cycle.
    """

    at: float
    what: str
    term: int | None = None
    node: int | None = None
    cycle: str = ""
    group: tuple[int, ...] = ()
    reason: str = ""
    told: float | None = None
    failures: tuple[Failure, ...] = ()
    verdict: Verdict | None = None
    data: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        whole = all(type(each) in (int, NoneType) for each in (self.term, self.node))
        times = [self.at] if self.told is None else [self.at, self.told]
        if not whole or not all(0 <= at < LATEST for at in times) or not _CYCLE.fullmatch(self.cycle):
            raise ValueError(f"no fact: {self}")

    def get(self, name: str) -> str:
        """A field of its line; "" where there is none."""
        return dict(self.data).get(name, "")


@dataclass
class Told:
    """All that one journal says. `nodes` are the job's, by infra_rank. `torn`: lines that are no whole ones;
    `strange`: lines that make no sense; `full`: it reached its bound; `problem`: why no more could be read."""

    machine: str = ""
    run_id: str = ""
    node: int | None = None
    nodes: tuple[str, ...] = ()
    per_node: int | None = None
    active: int | None = None
    first: float | None = None
    last: float | None = None
    facts: list[Fact] = field(default_factory=list)
    torn: int = 0
    strange: int = 0
    full: bool = False
    problem: str = ""


# -- of a journal's values


def cycle_text(value: Any) -> str:
    """A dumped Cycle as TERM.N."""
    return f"{int(value['term'])}.{int(value['n'])}"


def rank_of(message: dict[str, Any]) -> int:
    """Whose message it is."""
    return int(message["node"]["infra_rank"] if "node" in message else message["infra_rank"])


def is_log(action: Any, event: str) -> bool:
    """Whether the action is this line of the log."""
    return bool(action["type"] == "Log" and action["event"] == event)


def failures_of(value: dict[str, Any]) -> tuple[Failure, ...]:
    """With what this version knows of them. `time` is 0 where it is not known."""
    plain = to_plain(Failure(0, 0))
    known = [plain | {name: part for name, part in each.items() if name in plain} for each in value["failures"]]
    found = [from_plain(each, Failure) for each in known]
    return tuple(each if 0 <= each.time < LATEST else replace(each, time=0.0) for each in found)

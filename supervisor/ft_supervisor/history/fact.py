"""What is known of a run's history: facts, each from one line of a journal. Types, and what they are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any

from ft_supervisor.core.protocol.codec import from_plain, to_plain
from ft_supervisor.core.protocol.model import Failure, Verdict

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

    `term` is that of the coordinator; an agent's facts have none. `cause`: a core.protocol.settings.Cause, "growth", or
    "" for none. `rule`, `response`: of a decision. `excluded`: nodes that rules had excluded when a cycle began;
    `choice`: why its nodes were chosen. `takeover`: of in_charge. Raises ValueError for what can be no number, time or
    cycle."""

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
    cause: str = ""
    rule: str = ""
    response: str = ""
    excluded: tuple[int, ...] = ()
    choice: str = ""
    takeover: bool = False

    def __post_init__(self) -> None:
        whole = all(type(each) in (int, NoneType) for each in (self.term, self.node))
        times = [self.at] if self.told is None else [self.at, self.told]
        if not whole or not all(0 <= at < LATEST for at in times) or not _CYCLE.fullmatch(self.cycle):
            raise ValueError(f"no fact: {self}")


@dataclass
class Told:
    """All that one journal says. `nodes` are the job's, by infra_rank; `rules`: where each of
    its rules stands, as FILE:LINE. `torn`: lines that are no whole ones;
    `strange`: lines that make no sense; `full`: it reached its bound; `problem`: why no more could be read."""

    machine: str = ""
    run_id: str = ""
    node: int | None = None
    nodes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
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


def announced(actions: list[Any]) -> list[dict[str, Any]]:
    """The facts among these actions, each with its `type`."""
    return [action["fact"] for action in actions if action["type"] == "Announce"]


def cause_of(fact: dict[str, Any]) -> str:
    """A core.protocol.settings.Cause, "growth", or "" for none: of a CycleFailed or a Decided."""
    return "growth" if fact["growth"] else str(fact["cause"] or "")


def failures_of(value: dict[str, Any]) -> tuple[Failure, ...]:
    """What value["failures"] says, as far as this version knows it. `time` is 0 where it is not known."""
    return tuple(failure_of(each) for each in value["failures"])


def failure_of(value: dict[str, Any]) -> Failure:
    """One Failure, as far as this version knows it. `time` is 0 where it is not known."""
    plain = to_plain(Failure(0, 0))
    found: Failure = from_plain(plain | {name: part for name, part in value.items() if name in plain}, Failure)
    return found if 0 <= found.time < LATEST else replace(found, time=0.0)

"""The states of an agent, what each carries, and the table of transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import ClassVar

from ft_supervisor.core.actions import Leave
from ft_supervisor.core.messages import Run
from ft_supervisor.core.model import Cycle, Memory
from ft_supervisor.core.protocol import agent_facts as facts
from ft_supervisor.core.transitions import Transitions


class State(StrEnum):
    """What the node does. The names are also events of the log, and what `status` shows."""

    JOINING = "joining"
    STANDBY = "standby"
    CHECKING = "checking"
    ACTIVE = "active"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    CLOSING = "closing"


_RUN = {State.CHECKING: "Run, and checks are due before a cycle", State.ACTIVE: "Run"}
_END = {State.CLOSING: "verdict | no coordinator for too long | unanswered signal | another configuration"}

TRANSITIONS: Transitions[State] = {
    State.JOINING: {
        State.STANDBY: "Standby | Run on an unhealthy node",
        State.SUCCEEDED: "connected, after a former agent of the node has seen its workers succeed",
        **_RUN,
        **_END,
    },
    State.STANDBY: {State.STANDBY: "Standby | Run on an unhealthy node", **_RUN, **_END},
    State.CHECKING: {
        State.ACTIVE: "the checks pass",
        State.STANDBY: "a check fails",
        State.STOPPING: "Stop | Standby | fence | CannotStart",
        **_END,
    },
    State.ACTIVE: {
        State.STOPPING: "a worker fails or hangs | Stop | Standby | fence | CannotStart",
        State.SUCCEEDED: "all workers have exited with 0",
        **_END,
    },
    State.STOPPING: {
        State.STOPPING: "an earlier deadline: fence | CannotStart | a shorter grace",
        State.STANDBY: "WorkersGone",
        **_END,
    },
    State.SUCCEEDED: {State.STANDBY: "Standby | Run on an unhealthy node", **_RUN, **_END},
    State.CLOSING: {},
}


class _Idle:
    """No workers of this node can be alive."""

    run: ClassVar[None] = None


@dataclass(frozen=True)
class Joining(_Idle):
    """No coordinator has given the node anything to do yet."""

    name: ClassVar[State] = State.JOINING


@dataclass(frozen=True)
class Standby(_Idle):
    """The node waits for a Run."""

    name: ClassVar[State] = State.STANDBY


@dataclass(frozen=True)
class Succeeded(_Idle):
    """All of the node's workers of `cycle` have exited with 0."""

    cycle: Cycle
    name: ClassVar[State] = State.SUCCEEDED


@dataclass(frozen=True)
class Checking:
    """The daemon runs the health checks that are due before `run`."""

    run: Run
    name: ClassVar[State] = State.CHECKING


@dataclass(frozen=True)
class Active:
    """The workers of `run` run."""

    run: Run
    name: ClassVar[State] = State.ACTIVE


@dataclass(frozen=True)
class Stopping:
    """The workers of `run` are being stopped. If they are not gone by `gone_by`, the daemon has to end them."""

    run: Run
    gone_by: float = inf
    name: ClassVar[State] = State.STOPPING


@dataclass(frozen=True)
class Closing:
    """The node leaves as `leave` says, as soon as its `workers` are gone. None: they are, and Leave was given."""

    leave: Leave
    workers: Stopping | None
    name: ClassVar[State] = State.CLOSING

    @property
    def run(self) -> Run | None:
        """The Run whose workers may still be alive."""
        return self.workers.run if self.workers else None


AgentState = Joining | Standby | Succeeded | Checking | Active | Stopping | Closing


def workers_of(state: AgentState) -> Stopping | None:
    """The workers that may be alive, and their deadline (infinite if they are not being stopped); None if none are."""
    match state:
        case Checking(run) | Active(run):
            return Stopping(run)
        case Stopping():
            return state
        case Closing(_, workers):
            return workers
        case _:
            return None


def fact_of(state: AgentState) -> facts.AgentFact:
    """Return what is announced when the agent has come into this state."""
    match state:
        case Active(run):
            return facts.AgentActive(run.cycle, run.group_rank, run.group_world_size)
        case Closing(leave):
            return facts.AgentClosing(leave.reason)
        case Checking(run) | Stopping(run):
            return facts.AgentBecame(facts.QuietState(state.name), run.cycle)
        case Succeeded(cycle):
            return facts.AgentBecame(facts.QuietState.SUCCEEDED, cycle)
        case _:
            return facts.AgentBecame(facts.QuietState(state.name))


def invariants(state: AgentState, memory: Memory, leased: bool) -> Mapping[str, bool]:
    """Return which invariants hold, in words. `leased`: the node has ever had a lease."""
    run, workers = state.run, workers_of(state)
    begins = isinstance(state, Checking | Active)
    return {
        "the cycle that runs is the newest that the node remembers": run is None
        or memory.newest == run.cycle
        or (not begins and memory.newest is not None and run.cycle < memory.newest),
        "workers run under a lease": run is None or leased,
        "workers that are stopped have a deadline": workers is None or begins or workers.gone_by < inf,
        "a node with a verdict closes": memory.verdict is None or isinstance(state, Closing),
        "a node that closes leaves with its verdict": not isinstance(state, Closing)
        or state.leave.verdict in (None, memory.verdict),
    }

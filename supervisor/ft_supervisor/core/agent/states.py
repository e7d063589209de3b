"""The states of an agent, what each carries, and the table of transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from ft_supervisor.core.protocol import agent_facts as facts
from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Cycle, Memory
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.transitions import Transitions

_RUN = {AgentState.CHECKING: "Run, and checks are due before a cycle", AgentState.ACTIVE: "Run"}
_END = {AgentState.CLOSING: "verdict | no coordinator for too long | unanswered signal | another configuration"}

TRANSITIONS: Transitions[AgentState] = {
    AgentState.JOINING: {
        AgentState.STANDBY: "Standby | Run on an unhealthy node",
        AgentState.SUCCEEDED: "connected, after a former agent of the node has seen its workers succeed",
        **_RUN,
        **_END,
    },
    AgentState.STANDBY: {AgentState.STANDBY: "Standby | Run on an unhealthy node", **_RUN, **_END},
    AgentState.CHECKING: {
        AgentState.ACTIVE: "the checks pass",
        AgentState.STANDBY: "a check fails",
        AgentState.STOPPING: "Stop | Standby | fence | CannotStart",
        **_END,
    },
    AgentState.ACTIVE: {
        AgentState.STOPPING: "a worker fails or hangs | Stop | Standby | fence | CannotStart",
        AgentState.SUCCEEDED: "all workers have exited with 0",
        **_END,
    },
    AgentState.STOPPING: {
        AgentState.STOPPING: "an earlier deadline, or no parking any more: fence | CannotStart | a shorter grace",
        AgentState.STANDBY: "WorkersGone: each worker has ended, or is parked",
        **_END,
    },
    AgentState.SUCCEEDED: {AgentState.STANDBY: "Standby | Run on an unhealthy node", **_RUN, **_END},
    AgentState.CLOSING: {},
}


class _Idle:
    """No workers of this node can be alive."""

    run: ClassVar[None] = None


@dataclass(frozen=True)
class Joining(_Idle):
    """No coordinator has given the node anything to do yet."""

    name: ClassVar[AgentState] = AgentState.JOINING


@dataclass(frozen=True)
class Standby(_Idle):
    """The node waits for a Run."""

    name: ClassVar[AgentState] = AgentState.STANDBY


@dataclass(frozen=True)
class Succeeded(_Idle):
    """All of the node's workers of `cycle` have exited with 0."""

    cycle: Cycle
    name: ClassVar[AgentState] = AgentState.SUCCEEDED


@dataclass(frozen=True)
class Checking:
    """The daemon runs the health checks that are due before `run`."""

    run: Run
    name: ClassVar[AgentState] = AgentState.CHECKING


@dataclass(frozen=True)
class Active:
    """The workers of `run` run."""

    run: Run
    name: ClassVar[AgentState] = AgentState.ACTIVE


@dataclass(frozen=True)
class Stopping:
    """The workers of `run` are being stopped. If they are not gone by `gone_by`, the daemon has to end them. `park`:
    they may be parked instead; once they may not, it stays so."""

    run: Run
    gone_by: float = inf
    park: bool = False
    name: ClassVar[AgentState] = AgentState.STOPPING


@dataclass(frozen=True)
class Closing:
    """The node leaves as `leave` says, as soon as its `workers` are gone. None: they are, and Leave was given."""

    leave: Leave
    workers: Stopping | None
    name: ClassVar[AgentState] = AgentState.CLOSING

    @property
    def run(self) -> Run | None:
        """The Run whose workers may still be alive."""
        return self.workers.run if self.workers else None


AnyState = Joining | Standby | Succeeded | Checking | Active | Stopping | Closing


def workers_of(state: AnyState) -> Stopping | None:
    """The workers that may be alive, and their deadline (infinite if they are not being stopped); None if none are."""
    match state:
        case Checking(run) | Active(run):
            return Stopping(run, park=True)
        case Stopping():
            return state
        case Closing(_, workers):
            return workers
        case _:
            return None


def fact_of(state: AnyState) -> facts.AgentFact:
    """Return what is announced when the agent has come into this state."""
    match state:
        case Active(run):
            return facts.AgentActive(run.cycle, run.group_rank, run.group_world_size)
        case Closing(leave):
            return facts.AgentClosing(leave.reason)
        case Checking(run) | Stopping(run):
            return facts.AgentBecame(state.name, run.cycle)
        case Succeeded(cycle):
            return facts.AgentBecame(AgentState.SUCCEEDED, cycle)
        case _:
            return facts.AgentBecame(state.name)


def invariants(state: AnyState, memory: Memory, leased: bool) -> Mapping[str, bool]:
    """Return which invariants hold, in words. `leased`: the node has ever had a lease."""
    run, workers = state.run, workers_of(state)
    begins = isinstance(state, Checking | Active)
    return {
        "the cycle that runs is the newest that the node remembers": run is None
        or memory.newest == run.cycle
        or (not begins and memory.newest is not None and run.cycle < memory.newest),
        "workers run under a lease": run is None or leased,
        "workers that are stopped have a deadline": workers is None or begins or workers.gone_by < inf,
        "a node that closes parks nothing": not isinstance(state, Closing) or workers is None or not workers.park,
        "a node with a verdict closes": memory.verdict is None or isinstance(state, Closing),
        "a node that closes leaves with its verdict": not isinstance(state, Closing)
        or state.leave.verdict in (None, memory.verdict),
    }

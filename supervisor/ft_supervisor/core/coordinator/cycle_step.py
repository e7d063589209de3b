"""What goes into a call of Cycles, and what comes out: phases, the leadership's standing, and the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ft_supervisor.core.coordinator.current_cycle import CurrentCycle
from ft_supervisor.core.protocol.actions import CoordinatorAction
from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.core.transitions import Transitions


class Phase(StrEnum):
    """Where the training is."""

    JOINING = "joining"
    RUNNING = "running"
    STOPPING = "stopping"


PHASES: Transitions[Phase] = {
    Phase.JOINING: {Phase.RUNNING: "enough nodes | a cycle of a former coordinator"},
    Phase.RUNNING: {
        Phase.STOPPING: "a failure, a lost node, a drain, growth",
        Phase.RUNNING: "a newer cycle of a former coordinator",
    },
    Phase.STOPPING: {Phase.RUNNING: "the next cycle | a newer cycle of a former coordinator"},
}
"""The next phases of each phase, and what leads there. A verdict ends the job in any of them."""


def invariants(phase: Phase, current: CurrentCycle, troubled: bool) -> Mapping[str, bool]:
    """Return each invariant in words, and whether it holds. `troubled`: the cycle has a reason to end."""
    return {
        "before the first cycle there is no group": phase is not Phase.JOINING
        or (current.name is None and not current.group),
        "a cycle has a group": phase is Phase.JOINING or (current.name is not None and bool(current.group)),
        "only nodes of the cycle are waited for": current.pending <= set(current.group),
        "what is stopped has a trouble": phase is not Phase.STOPPING or troubled,
    }


@dataclass(frozen=True)
class Standing:
    """What Cycles needs to know of the leadership, as of one call.

    `now`: the coordinator's own clock; `wall`: seconds since the epoch by the same clock. `age`: seconds since a
    majority was certainly with us, None if it never was. `eligible`: the members that a successor would certainly ask;
    only these may be given work.
    """

    now: float
    wall: float
    age: float | None
    eligible: frozenset[int]


@dataclass
class Step:
    """What a call of Cycles leads to: `actions`, in order, and afterwards at most one of two things.

    `verdict`: how the job is to end, which the coordinator may propose. `ready`: no worker runs any more; a new cycle
    is wanted, and `begin` is to be called if the leadership permits one.
    """

    actions: list[CoordinatorAction] = field(default_factory=list)
    verdict: Verdict | None = None
    ready: bool = False

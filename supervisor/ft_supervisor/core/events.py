"""What the three machines are told, one group a machine."""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core.messages import ToAgent, ToCoordinator
from ft_supervisor.core.model import Cycle, Failure, Verdict
from ft_supervisor.core.orders import Order


@dataclass(frozen=True)
class Tick:
    """Time has passed; each machine gets one every heartbeat."""


# -- the coordinator's


@dataclass(frozen=True)
class Received:
    """A message came out of the inbox."""

    message: ToCoordinator


@dataclass(frozen=True)
class Heard:
    """The heartbeat counters of these nodes have moved since the last look."""

    infra_ranks: frozenset[int]


# -- the agent's


@dataclass(frozen=True)
class Connected:
    """The store of our coordinator answers on new connections. `port` is free on this node just now."""

    port: int


@dataclass(frozen=True)
class Disconnected:
    """The connections are gone or silent; the shell goes on trying."""

    reason: str


@dataclass(frozen=True)
class Mailed:
    """A message came out of our mail."""

    message: ToAgent


@dataclass(frozen=True)
class LeaseMoved:
    """The lease has a newer value, which was asked for at `asked` (seconds of the caller's monotonic clock)."""

    asked: float


@dataclass(frozen=True)
class BarrierPassed:
    """All active nodes of `cycle` have entered its exit barrier."""

    cycle: Cycle


@dataclass(frozen=True)
class WorkersExited:
    """Workers of `cycle` have exited: some failed, or (no failures) the last one has succeeded."""

    cycle: Cycle
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class WorkersGone:
    """After Start or StopWorkers: no process of the workers of `cycle` is left. `port` is free just now."""

    cycle: Cycle
    port: int


@dataclass(frozen=True)
class Terminated:
    """The daemon was told by a signal to end the node."""

    reason: str


# -- everybody's


@dataclass(frozen=True)
class Ended:
    """The store's `permanent_close` (or, for a daemon, the run's verdict file) holds this verdict, whoever wrote it."""

    verdict: Verdict


# -- the daemon's


@dataclass(frozen=True)
class ChildExited:
    """`child` ("agent" or "coordinator") is gone, and everything below it. `status` says how, for people."""

    child: str
    status: str


@dataclass(frozen=True)
class Ordered:
    """A child said something over its link."""

    child: str
    order: Order


@dataclass(frozen=True)
class Signalled:
    """The daemon got a signal; `name` as in SIGTERM."""

    name: str


CoordinatorEvent = Tick | Received | Heard | Ended
AgentEvent = (
    Tick
    | Connected
    | Disconnected
    | Mailed
    | LeaseMoved
    | BarrierPassed
    | WorkersExited
    | WorkersGone
    | Terminated
    | Ended
)
DaemonEvent = Tick | ChildExited | Ordered | Signalled | Ended

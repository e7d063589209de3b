"""Decides what is reported of this node's workers, and when everything that they have left must be ended.

    starting   CannotStart, if this node is not able to
    running    WorkersExited with failures, each once; when all have exited: a sweep, then WorkersExited without any
    stopping   the signal; at the deadline, or once all have exited: a sweep, then WorkersGone

A sweep ends every process below the agent, however deep. It follows a success as well: what the workers have left must
not run beside the next cycle. All times in seconds.
"""

from __future__ import annotations

from enum import StrEnum

from ft_supervisor.core.protocol.events import CannotStart, WorkersExited, WorkersGone
from ft_supervisor.core.protocol.model import Cycle, Failure
from ft_supervisor.core.transitions import Transitions, check_transition


class WorkersState(StrEnum):
    """What becomes of the workers."""

    NONE = "none"
    RUNNING = "running"
    UNABLE = "unable"
    """The node could not start them. Some may run: their end is no success."""
    STOPPING = "stopping"


_STOPPED = {WorkersState.STOPPING: "StopWorkers"}

TRANSITIONS: Transitions[WorkersState] = {
    WorkersState.NONE: {WorkersState.RUNNING: "Start", **_STOPPED},
    WorkersState.RUNNING: {
        WorkersState.UNABLE: "an error of the node",
        WorkersState.NONE: "all have exited, and nothing is left",
        **_STOPPED,
    },
    WorkersState.UNABLE: {**_STOPPED},
    WorkersState.STOPPING: {WorkersState.STOPPING: "another StopWorkers", WorkersState.NONE: "nothing is left"},
}


class NodeWorkers:
    """The workers of one node, from a start until nothing is left of them. The owner tells what it sees of them."""

    def __init__(self) -> None:
        self.state = WorkersState.NONE
        self.deadline: float | None = None
        """When the workers are killed; None unless they are being stopped."""
        self._cycle = Cycle(0, 0)
        self._cannot: CannotStart | None = None
        self._failures: list[Failure] = []
        self._signalled = False

    def start(self, cycle: Cycle) -> None:
        """Note that the workers of this cycle are started. Raises InvalidState if others may still be there."""
        self._become(WorkersState.RUNNING)
        self._cycle = cycle

    def unable(self, reason: str) -> None:
        """Note that this node could not start them, through no fault of theirs."""
        self._become(WorkersState.UNABLE)
        self._cannot = CannotStart(self._cycle, reason)

    def fail(self, failure: Failure) -> None:
        """Note a worker's failure. While they are stopped it is our own doing, and is not reported."""
        if self.state is not WorkersState.STOPPING:
            self._failures.append(failure)

    def stop(self, cycle: Cycle, grace: float, signal: str, now: float) -> str:
        """Begin to stop them, or bring the SIGKILL forward: see StopWorkers. Return the signal to send now, or ""."""
        self._become(WorkersState.STOPPING)
        self._cycle = cycle
        self.deadline = now + grace if self.deadline is None else min(self.deadline, now + grace)
        if self._signalled:
            return ""
        self._signalled = bool(signal)
        return signal

    def report(self) -> CannotStart | WorkersExited | None:
        """Return what the agent has not heard yet, each event once."""
        if self._cannot is not None:
            cannot, self._cannot = self._cannot, None
            return cannot
        if self.state is WorkersState.RUNNING and self._failures:
            failures, self._failures = tuple(self._failures), []
            return WorkersExited(self._cycle, failures)
        return None

    def wants_sweep(self, now: float, *, live: bool) -> bool:
        """Whether everything below the agent is to be ended. `live`: some worker has not exited."""
        match self.state:
            case WorkersState.RUNNING:
                return not live and not self._failures
            case WorkersState.STOPPING:
                return not live or (self.deadline is not None and now >= self.deadline)
            case _:
                return False

    def swept(self, port: int) -> WorkersExited | WorkersGone:
        """Note that nothing is left of them. `port`: free just now, for the next cycle."""
        stopped, cycle = self.state is WorkersState.STOPPING, self._cycle
        self._become(WorkersState.NONE)
        self.deadline, self._signalled, self._cannot, self._failures = None, False, None, []
        return WorkersGone(cycle, port) if stopped else WorkersExited(cycle, ())

    def _become(self, state: WorkersState) -> None:
        check_transition(TRANSITIONS, self.state, state)
        self.state = state

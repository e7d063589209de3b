"""Decides what is reported of this node's workers, which of them are killed, and when everything that they have left
must be ended.

    starting   CannotStart, if this node is not able to
    running    WorkersExited with failures, each once; WorkersReturned; when all have exited: a sweep, then
               WorkersExited without any
    stopping   the signal, or the request to leave the function; once each worker has exited, is parked, or is to be
               killed: a sweep, then WorkersGone

A worker has stopped when it has exited, or is parked. It is parked only if it has reported that nothing of the cycle is
left in it, and the agent has looked and found nothing beside it either. One that cannot show that in time is killed,
which shows it. A sweep ends every process below the agent, however deep, save the parked workers and what they may
keep. It follows a success as well: what the workers have left must not run beside the next cycle. All times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from ft_supervisor.core.protocol.events import CannotStart, WorkersExited, WorkersGone, WorkersReturned
from ft_supervisor.core.protocol.model import Cycle, Failure
from ft_supervisor.core.transitions import Transitions, check_invariants, check_transition


class WorkersState(StrEnum):
    """State of all workers of the node together."""

    NONE = "none"
    """No worker runs. Some may be parked."""
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
    WorkersState.STOPPING: {
        WorkersState.STOPPING: "another StopWorkers",
        WorkersState.NONE: "each has exited or is parked, and nothing is left",
    },
}


class WorkerState(StrEnum):
    """State of one worker's process. A process that has exited has no state."""

    RUNNING = "running"
    """It may run anything, even after a request to stop or a failure of its own."""
    RETURNED = "returned"
    """Its restartable function has returned, and waits for those of all other workers."""
    QUIESCED = "quiesced"
    """It has left its function, and nothing of the cycle is left in it or beside it."""
    PARKED = "parked"
    """It waits for the next cycle."""
    DOOMED = "doomed"
    """It is to be killed in any case."""


_DOOM = {
    WorkerState.DOOMED: "something of the cycle is left | a rule ignores its failure | no parking any more | DropParked"
}

WORKER_TRANSITIONS: Transitions[WorkerState] = {
    WorkerState.RUNNING: {
        WorkerState.RETURNED: "its function has returned",
        WorkerState.QUIESCED: "quiesced, and the agent finds nothing left",
        **_DOOM,
    },
    WorkerState.RETURNED: {
        WorkerState.RUNNING: "ReleaseWorkers",
        WorkerState.QUIESCED: "quiesced, and the agent finds nothing left",
        **_DOOM,
    },
    WorkerState.QUIESCED: {WorkerState.PARKED: "parked", **_DOOM},
    WorkerState.PARKED: {
        WorkerState.RUNNING: "Start",
        WorkerState.DOOMED: "of no use any more | no parking any more | DropParked",
    },
    WorkerState.DOOMED: {},
}


@dataclass
class _Worker:
    """One process. `restartable`: it can be parked; `asked`: it was asked to; `last`: this is its last cycle all the
    same. `functions`: the restartable functions of this cycle from which it has returned. `until`: when it is killed
    unless it is parked."""

    state: WorkerState = WorkerState.RUNNING
    restartable: bool = False
    asked: bool = False
    last: bool = False
    signalled: bool = False
    failed: bool = False
    functions: int = 0
    until: float = inf

    def become(self, state: WorkerState) -> None:
        check_transition(WORKER_TRANSITIONS, self.state, state)
        self.state = state

    def doom(self) -> None:
        if self.state is not WorkerState.DOOMED:
            self.become(WorkerState.DOOMED)


@dataclass(frozen=True)
class StopOrders:
    """Orders for the workers of these local ranks: `signalled` get `signal`, and `aborted` are asked to leave their
    functions."""

    signal: str
    signalled: tuple[int, ...]
    aborted: tuple[int, ...]


class NodeWorkers:
    """The workers of one node, from a start until each of them has stopped, and while they are parked. The owner passes
    on what happens to them, and asks after each event for `doomed`, `report` and `wants_sweep`."""

    def __init__(self, quiesce: float = 0.0) -> None:
        """`quiesce`: seconds that a worker has to be parked."""
        self.state = WorkersState.NONE
        self._quiesce = quiesce
        self._cycle = Cycle(0, 0)
        self._cannot: CannotStart | None = None
        self._failures: list[Failure] = []
        self._workers: dict[int, _Worker] = {}
        self._returned = 0
        self._gone: Cycle | None = None
        """The cycle of the last WorkersGone."""

    # -- from a start

    def start(self, cycle: Cycle, *, fresh: bool = True) -> tuple[int, ...]:
        """Note that the workers of this cycle are started. Return the parked ones that go on in it; with `fresh` there
        are none, and the owner kills those that were parked before it starts others. Raises InvalidState if workers may
        still run."""
        self._become(WorkersState.RUNNING)
        self._cycle, self._returned = cycle, 0
        if fresh:
            self._workers.clear()
        again = {rank: _Worker(restartable=True) for rank in self.parked}
        self._workers = again
        return tuple(again)

    def started(self, local_ranks: Iterable[int]) -> None:
        """Note new processes of this cycle."""
        self._workers |= {rank: _Worker() for rank in local_ranks}

    def unable(self, reason: str) -> None:
        """Note that this node could not start them, through no fault of theirs."""
        self._become(WorkersState.UNABLE)
        self._cannot = CannotStart(self._cycle, reason)

    # -- reports about workers

    def restartable(self, local_rank: int) -> None:
        """Note that this worker has called a restartable function, so that it can be parked."""
        worker = self._workers.get(local_rank)
        if worker is not None and not worker.signalled:
            worker.restartable = True

    def wait(self, local_rank: int) -> None:
        """Note that a process of a spare has come to its restartable function, and waits there for the first cycle."""
        if self.state is WorkersState.NONE:
            self._workers[local_rank] = _Worker(WorkerState.PARKED, restartable=True)

    def fail(self, failure: Failure) -> None:
        """Note a worker's failure. It is not reported while the workers are being stopped: the stop has caused it."""
        worker = self._workers.get(failure.local_rank)
        if self.state is not WorkersState.STOPPING and not (worker is not None and worker.failed):
            self._failures.append(failure)
            if worker is not None:
                worker.failed = True

    def returned(self, local_rank: int) -> None:
        """Note that this worker's function has returned, and waits."""
        worker = self._workers.get(local_rank)
        if worker is not None and worker.state is WorkerState.RUNNING:
            worker.become(WorkerState.RETURNED)
            worker.functions += 1

    def quiesced(self, local_rank: int, found: str = "") -> None:
        """Note that this worker has reported that nothing of the cycle is left in it. `found`: the agent's own
        finding of something that is left, "" for nothing."""
        worker = self._workers.get(local_rank)
        if worker is None or worker.state not in (WorkerState.RUNNING, WorkerState.RETURNED):
            return
        if found or not worker.restartable or worker.last:
            worker.doom()
        else:
            worker.become(WorkerState.QUIESCED)

    def park(self, local_rank: int) -> None:
        """Note that this worker has reported that it waits for the next cycle. It is believed after `quiesced`."""
        worker = self._workers.get(local_rank)
        if worker is not None and worker.state is not WorkerState.PARKED:
            if worker.state is WorkerState.QUIESCED:
                worker.become(WorkerState.PARKED)
            else:
                worker.doom()

    def spoil(self, local_rank: int) -> bool:
        """Note that this worker has reported that it cannot be used again, and ends. Return whether it was parked, so
        that it is killed: it must not be given the next cycle, in which its end would be a failure."""
        worker = self._workers.get(local_rank)
        if worker is None or worker.state is not WorkerState.PARKED:
            return False
        worker.doom()
        return True

    def has(self, local_rank: int) -> bool:
        """Whether this is a worker of a cycle, or is or was parked. A spare's process is not, before it waits."""
        return local_rank in self._workers

    def exited(self, local_rank: int) -> bool:
        """Note that this process has ended. Return whether that is a failure, unless its code is 0."""
        worker = self._workers.pop(local_rank, None)
        ours = worker is None or worker.failed or worker.state in (WorkerState.DOOMED, WorkerState.PARKED)
        return self.state in (WorkersState.RUNNING, WorkersState.UNABLE) and not ours

    # -- orders to workers

    def stop(self, cycle: Cycle, grace: float, signal: str, now: float, *, park: bool = False) -> StopOrders:
        """Begin to stop them, or bring the SIGKILL forward: see StopWorkers. Return what they get now. An order
        that has crossed their WorkersGone changes nothing."""
        if self.state is WorkersState.NONE and cycle == self._gone:
            return StopOrders(signal, (), ())
        self._become(WorkersState.STOPPING)
        self._cycle = cycle
        signalled, aborted = [], []
        for local_rank, worker in sorted(self._workers.items()):
            if not park and (worker.asked or worker.state in (WorkerState.QUIESCED, WorkerState.PARKED)):
                worker.doom()
            elif worker.state in (WorkerState.PARKED, WorkerState.DOOMED):
                pass
            elif park and worker.restartable and not worker.last:
                worker.until = min(worker.until, now + self._quiesce)
                if not worker.asked and worker.state is not WorkerState.QUIESCED:
                    aborted.append(local_rank)
                worker.asked = True
            else:
                worker.until = min(worker.until, now + grace)
                if signal and not worker.signalled:
                    signalled.append(local_rank)
                    worker.signalled = True
        return StopOrders(signal, tuple(signalled), tuple(aborted))

    def release(self, functions: int) -> tuple[int, ...]:
        """Return the workers that may return from their function: see ReleaseWorkers."""
        waiting = {} if self.state is not WorkersState.RUNNING else self._workers
        released = [rank for rank, worker in sorted(waiting.items())
                    if worker.state is WorkerState.RETURNED and worker.functions <= functions]  # fmt: skip
        for rank in released:
            self._workers[rank].become(WorkerState.RUNNING)
        return tuple(released)

    def end(self, local_ranks: Iterable[int]) -> None:
        """Doom these workers: see EndWorkers."""
        for rank in local_ranks:
            if (worker := self._workers.get(rank)) is not None and self.state is WorkersState.RUNNING:
                worker.doom()

    def drop_parked(self) -> None:
        """Let none of the present processes go on in a later cycle: see DropParked. Between two cycles the owner kills
        all that are there."""
        if self.state is WorkersState.NONE:
            self._workers.clear()
        for worker in self._workers.values():
            worker.last = True
            if worker.state in (WorkerState.QUIESCED, WorkerState.PARKED):
                worker.doom()

    # -- conclusions

    @property
    def parked(self) -> tuple[int, ...]:
        """The local ranks of the workers that are parked: no sweep ends these."""
        return tuple(sorted(rank for rank, worker in self._workers.items() if worker.state is WorkerState.PARKED))

    @property
    def deadline(self) -> float | None:
        """When the next worker is killed; None unless one is to be."""
        times = [worker.until for worker in self._workers.values() if worker.state is not WorkerState.PARKED]
        return min((time for time in times if time < inf), default=None)

    def doomed(self, now: float) -> tuple[int, ...]:
        """Return the workers that get SIGKILL now, with everything below them."""
        return tuple(sorted(rank for rank, worker in self._workers.items() if _is_doomed(worker, now)))

    def report(self) -> CannotStart | WorkersExited | WorkersReturned | None:
        """Return what the agent has not heard yet, each event once."""
        if self._cannot is not None:
            cannot, self._cannot = self._cannot, None
            return cannot
        if self.state is not WorkersState.RUNNING:
            return None
        if self._failures:
            failures, self._failures = tuple(self._failures), []
            return WorkersExited(self._cycle, failures)
        functions = min((worker.functions for worker in self._workers.values()), default=0)
        if functions > self._returned:
            self._returned = functions
            return WorkersReturned(self._cycle, functions)
        return None

    def wants_sweep(self, now: float) -> bool:
        """Whether everything below the agent is to be ended, save what is parked."""
        match self.state:
            case WorkersState.RUNNING:
                return not self._workers and not self._failures
            case WorkersState.STOPPING:
                return all(
                    worker.state is WorkerState.PARKED or _is_doomed(worker, now) for worker in self._workers.values()
                )
            case _:
                return False

    def swept(self, port: int) -> WorkersExited | WorkersGone:
        """Note that nothing is left of them but the parked ones. `port`: free just now, for the next cycle. Raises
        InvalidState if one of them has neither exited nor is parked."""
        parked, stopped, cycle = self.parked, self.state is WorkersState.STOPPING, self._cycle
        check_invariants(self.state, {"each worker has exited, or is parked": len(parked) == len(self._workers)})
        self._become(WorkersState.NONE)
        self._cannot, self._failures = None, []
        if not stopped:
            return WorkersExited(cycle, ())
        self._gone = cycle
        return WorkersGone(cycle, port, parked)

    def _become(self, state: WorkersState) -> None:
        check_transition(TRANSITIONS, self.state, state)
        self.state = state


def _is_doomed(worker: _Worker, now: float) -> bool:
    return worker.state is WorkerState.DOOMED or (worker.state is not WorkerState.PARKED and now >= worker.until)

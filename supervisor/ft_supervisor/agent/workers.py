"""Starts, watches and stops this node's workers, without ever blocking the main loop for long.

core/agent/node_workers.py decides what is reported of them, and when to sweep. A sweep ends everything below this
process, however deep: the agent is a child subreaper, so that what a worker has double-forked is still below it.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from ft_supervisor.agent.failures import NOT_EXECUTABLE
from ft_supervisor.agent.leftovers import kill_tree
from ft_supervisor.agent.restartable import Restartable
from ft_supervisor.agent.spare_start import SpareStart
from ft_supervisor.agent.starter import Starter
from ft_supervisor.agent.worker_evidence import WorkerEvidence
from ft_supervisor.agent.worker_processes import WorkerProcesses
from ft_supervisor.core.agent.node_workers import NodeWorkers, WorkersState
from ft_supervisor.core.protocol.actions import EndWorkers, ReleaseWorkers, StopWorkers
from ft_supervisor.core.protocol.events import AgentEvent, Beat, WorkersStarted
from ft_supervisor.core.protocol.messages import Run
from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.process import clock
from ft_supervisor.process.log import log
from ft_supervisor.process.ports import free_port
from ft_supervisor.process.signals import describe_exit
from ft_supervisor.process.tree import kill_group, reap_orphans, sweep

_PIECE = 0.1
"""Seconds that one attempt to end everything may take, and between two of them."""


class Workers:
    """For the main thread. `wake` is called from another thread whenever a worker has exited: call `poll` then.

    `evidence` knows more of them. `others`: processes below this one that are no workers' and live on.
    """

    def __init__(
        self, job: Job, node: Node, wake: Callable[[], None], others: Callable[[], Collection[int]] = tuple
    ) -> None:
        self._job = job
        self.evidence = WorkerEvidence(job, node)
        self._others = others
        self._machine = NodeWorkers(job.timeouts.quiesce)
        self._starter = Starter(job, self.evidence, wake, self._hear)
        self._warm = self._starter.warm
        self._control = self._starter.control
        self._restartable = None
        if self._control is not None:
            self._restartable = Restartable(self._machine, self._control, self.evidence, job.settings.max_growth)
        self._processes = WorkerProcesses(wake)
        self._parks = False
        """Whether those that are stopped are to be parked."""
        self._events: list[AgentEvent] = []
        self._spare = SpareStart(job)
        self._retry_at: float | None = None
        self._warned = False

    @property
    def due(self) -> float | None:
        """The time of process.clock at which `poll` is due even if `wake` is not called; None for no such time."""
        if self._retry_at is not None:
            return self._retry_at
        looks = self._restartable.due if self._restartable else None
        dues = (self._machine.deadline, self._warm.due if self._warm else None, looks)
        return min((due for due in dues if due is not None), default=None)

    def start(self, run: Run) -> None:
        """Start the workers of `run`: those that are parked go on, unless it is a fresh start. `poll` reports
        what goes wrong: a command that can't be run as a failure of worker 0, all else as CannotStart. Raises
        InvalidState if other workers may still be there."""
        self._hear()
        self._collect()
        self._drop_unreachable()
        again = self._machine.start(run.cycle, fresh=run.fresh)
        self.evidence.begin(run)
        with self._told():
            self._drop_all_but(again)
            failure = self._starter.wrong_command() if len(again) < self._job.per_node else None
            if failure is None:
                self._launch(run, again)
            else:
                self._machine.fail(failure)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn an error of the start of workers into a report of `poll`."""
        try:
            yield
        except (OSError, MemoryError) as error:
            if self._warm is not None:
                self._warm.drop_orders()
            self.evidence.give_up()  # the sweep that follows needs file descriptors
            if isinstance(error, OSError) and error.errno == errno.E2BIG:  # the job's words, on every node the same
                self._machine.fail(self.evidence.failure(0, NOT_EXECUTABLE, None, f"can't start: {error}"))
            else:
                self._machine.unable(str(error) or type(error).__name__)
                self._retry_at = clock.now()  # nothing else calls `wake`

    def _launch(self, run: Run, again: Collection[int]) -> None:
        """Raises OSError, MemoryError; some workers may run then."""
        now, starter = clock.now(), self._starter
        starter.prepare(run, again)
        if self._restartable is not None:
            self._restartable.begin(run)
            for local_rank in again:
                self._restartable.run(local_rank, self._processes.pid(local_rank), starter.variables(local_rank))
                self.evidence.started({local_rank: self._processes.pid(local_rank)})
        made = Counter(in_process=len(again), warm=0, cold=0)
        for local_rank in range(self._job.per_node):
            if local_rank in again:
                continue
            process = starter.take_warm(run.cycle, local_rank, now)
            if process is not None:
                made["warm"] += 1
                self._add(local_rank, process)
            else:
                made["cold"] += 1
                self._start_cold(local_rank)
        starter.began(run, self.pids(), now)
        if self._control is not None:
            self._events.append(WorkersStarted(run.cycle, **made))

    def _start_cold(self, local_rank: int) -> None:
        process = self._starter.start_cold(local_rank)
        self._add(local_rank, process)
        self.evidence.started({local_rank: process.pid})

    def _drop_unreachable(self) -> None:
        """Kill parked workers that cannot be reached any more."""
        for local_rank in self._machine.parked:
            if self._control is None or not self._control.connected(self._processes.pid(local_rank)):
                self._machine.exited(local_rank)

    def _drop_all_but(self, again: Collection[int]) -> None:
        """Kill the workers that were parked, or on their way to it on a spare, and have no part in the next cycle.
        Raises OSError."""
        dropped = [local_rank for local_rank in self._processes if local_rank not in again]
        self._let_go(dropped)
        if dropped:
            keep = [*self._spared(), *(self._processes.pid(local_rank) for local_rank in again)]
            sweep(os.getpid(), keep, bound=_PIECE)

    def _let_go(self, local_ranks: Collection[int]) -> None:
        for local_rank in local_ranks:
            pid = self._processes.pid(local_rank)
            self._processes.drop(local_rank)
            self._forget(local_rank, pid)

    def _add(self, local_rank: int, process: subprocess.Popen[bytes]) -> None:
        self._processes.add(local_rank, process)
        self._machine.started([local_rank])

    def stand_by(self, spare: bool, now: float) -> None:
        """Note whether this node trains nothing while others do. On a spare the script is run up to its restartable
        function, where it waits for the node's first cycle."""
        if not self._spare.due(spare, now) or self._machine.state is not WorkersState.NONE or self._processes:
            return
        try:
            for local_rank, streams in self.evidence.open_spare().items():
                self._processes.add(local_rank, self._starter.start_spare(local_rank, streams))
        except (OSError, MemoryError) as error:
            self._spare.failed(str(error))
        self.evidence.started(self.pids())

    def stop(self, stop: StopWorkers, now: float) -> None:
        """See actions.StopWorkers."""
        if self._warm is not None:
            self._warm.plan.stopping()
        self._retry_at = now  # all of them may be parked already
        self._parks = stop.park
        orders = self._machine.stop(stop.cycle, stop.grace, stop.signal, now, park=stop.park)
        for local_rank in orders.signalled:
            with suppress(ProcessLookupError):
                os.killpg(self._processes.pid(local_rank), signal.Signals[orders.signal])
        if self._restartable is not None:
            for local_rank in orders.aborted:
                self._restartable.abort(self._processes.pid(local_rank))

    def release(self, release: ReleaseWorkers) -> None:
        """See actions.ReleaseWorkers."""
        if self._restartable is not None:
            for local_rank in self._machine.release(release.functions):
                self._restartable.release(self._processes.pid(local_rank))

    def end(self, end: EndWorkers) -> None:
        """See actions.EndWorkers."""
        self._machine.end(end.local_ranks)
        self._retry_at = clock.now()

    def drop_parked(self) -> None:
        """See actions.DropParked."""
        self._machine.drop_parked()
        self._retry_at = clock.now()
        if self._machine.state is WorkersState.NONE:
            self._kill(self._processes)
            self._let_go(tuple(self._processes))
        elif self._restartable is not None:
            self._restartable.drop()

    def kill(self) -> None:
        """Send SIGKILL to each worker and its process group, warm ones too, at once. Processes that have left the group
        are ended by the sweep that follows when the workers are stopped."""
        if self._warm is not None:
            self._warm.end()
        for pid in self.pids().values():
            kill_group(pid)

    def close(self) -> None:
        """End the warm workers for good: the node leaves."""
        if self._warm is not None:
            self._warm.close()

    def beats(self) -> tuple[Beat, ...]:
        """See WorkerEvidence.beats."""
        beats = self.evidence.beats()
        if self._warm is not None:
            for beat in beats:
                self._warm.plan.beat(beat.local_rank)
        return beats

    def poll(self, now: float) -> list[AgentEvent]:
        """Return the events since the last call. Takes at most about 0.1 s."""
        self._hear()
        self._collect()
        if self._restartable is not None:
            self._restartable.look(now)
            self._events += self._restartable.events()
        if self._warm is not None:
            if self._machine.state is WorkersState.NONE and not self._processes:
                self._warm.plan.idle()
            self._warm.poll(now)
        if (line := self.evidence.first_line()) is not None:
            self._events.append(line)
        events, self._events = self._events, []
        if (event := self._machine.report()) is not None:
            self._retry_at = now  # there may be more, and no exit of a worker may wake us
            return [*events, event]
        return [*events, *self._end_what_is_due(now)]

    def _end_what_is_due(self, now: float) -> list[AgentEvent]:
        doomed = [local_rank for local_rank in self._machine.doomed(now) if local_rank in self._processes]
        if self._restartable is not None:
            self._restartable.tell_killed(doomed, "it was not parked in time" if self._parks else "")
        if not self._machine.wants_sweep(now):
            self._kill(doomed)
            self._retry_at = now + _PIECE if doomed else None
            return []
        if not self._swept():
            return []
        port = self._port() if self._machine.state is WorkersState.STOPPING else 0  # after a success nothing follows
        if port is None:
            return []
        self._close_cycle()
        return [self._machine.swept(port)]

    def _kill(self, local_ranks: Collection[int]) -> None:
        """Kill these workers with all below them; others run on."""
        for local_rank in local_ranks:
            try:
                kill_tree(self._processes.pid(local_rank))
            except OSError as error:
                if self._later():
                    log("cannot_sweep", level="error", reason=str(error))

    def pids(self) -> dict[int, int]:
        """Return the pids of the workers that live, by local rank."""
        return self._processes.pids()

    def _collect(self) -> None:
        for local_rank, code in self._processes.exit_codes():
            pid = self._processes.pid(local_rank)
            if self._control is not None:  # it may have told why it ends
                self._control.drain(pid)
                self._hear()
            never_began = self._warm is not None and self._warm.waits(local_rank)
            self._processes.remove(local_rank)
            self._forget(local_rank, pid)
            if never_began:
                self._replace_warm(local_rank, code)
                continue
            if self._machine.state is WorkersState.NONE:
                self._lost(local_rank, code)
                continue
            self.evidence.exited(local_rank)
            if self._machine.exited(local_rank) and code != 0:
                self._machine.fail(self.evidence.failure(local_rank, code, self._starter.error_file(local_rank)))

    def _lost(self, local_rank: int, code: int) -> None:
        """Note that a worker has ended between two cycles, or on a spare."""
        if not self._machine.has(local_rank):
            self._spare.failed(describe_exit(code))
        self._machine.exited(local_rank)

    def _forget(self, local_rank: int, pid: int) -> None:
        if self._control is not None:
            self._control.forget(pid)
        if self._restartable is not None:
            self._restartable.gone(local_rank)

    def _replace_warm(self, local_rank: int, code: int) -> None:
        """Start a cold worker in place of a warm one that has exited before it took up its order, if the cycle goes
        on."""
        assert self._warm is not None
        if self._machine.state is WorkersState.RUNNING:
            self._warm.lost(local_rank, code, clock.now())
            with self._told():
                self._start_cold(local_rank)
        else:
            self._machine.exited(local_rank)
            self._warm.drop(local_rank)

    def _hear(self) -> None:
        """Take the messages of workers."""
        if self._control is None or self._restartable is None:
            return
        messages, now = self._control.poll(), clock.now()
        for local_rank in self._warm.hear(messages) if self._warm is not None else ():
            if local_rank in self._processes:
                self.evidence.started({local_rank: self._processes.pid(local_rank)})
        ranks = {pid: local_rank for local_rank, pid in self.pids().items()}
        for said in messages:
            if said.pid in ranks:
                self._restartable.hear(ranks[said.pid], said, now)

    def _swept(self) -> bool:
        """Return whether nothing is left below this process; if not, `due` is the time to try again."""
        try:
            left = sweep(os.getpid(), self._spared(), bound=_PIECE)
            self._collect()
            reap_orphans([*self._processes.unreaped(), *self._spared()])
        except OSError as error:
            if self._later():
                log("cannot_sweep", level="error", reason=str(error))
            return False
        ended = len(self._processes) == len(self._machine.parked)
        self._retry_at = None if ended and not left else clock.now() + _PIECE
        if left and not self._warned:
            self._warned = True
            log("workers_left", level="warning", pids=",".join(map(str, left)))
        return self._retry_at is None

    def _spared(self) -> Collection[int]:
        """Processes below this one that no sweep ends: those that are no workers of the cycle, and parked workers."""
        parked = [self._processes.pid(local_rank) for local_rank in self._machine.parked]
        return [*self._others(), *(self._warm.pids if self._warm else ()), *parked]

    def _port(self) -> int | None:
        """Return a free port for the next cycle; None where no socket can be opened, and `due` is the time to try
        again."""
        try:
            return free_port("", avoid=self._job.ports)
        except OSError as error:
            if self._later():
                log("no_port", level="warning", reason=str(error))
            return None

    def _later(self) -> bool:
        """Poll again soon, when there may be file descriptors again. Return whether it is the first time in this cycle,
        which gets a log line."""
        self._retry_at = clock.now() + _PIECE
        first, self._warned = not self._warned, True
        return first

    def _close_cycle(self) -> None:
        self._warned = False
        parked = self._machine.parked
        if self._warm is not None:
            self._warm.drop_orders()
        self.evidence.close(parked)
        self._starter.release()

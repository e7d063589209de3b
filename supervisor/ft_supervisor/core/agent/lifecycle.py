"""The life of a node's workers: from a Run, over their failure, success or stop, to the moment when none is left.

states.py has the states and the table of transitions, which `_become` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ft_supervisor.core.agent.failures import truncate_failures
from ft_supervisor.core.agent.first_sign import FirstSign
from ft_supervisor.core.agent.follower import Follower
from ft_supervisor.core.agent.hang import HangDetector
from ft_supervisor.core.agent.hang_notice import HangNotice, truncated
from ft_supervisor.core.agent.states import (
    TRANSITIONS,
    Active,
    AnyState,
    Checking,
    Closing,
    Joining,
    Standby,
    Stopping,
    Succeeded,
    fact_of,
    workers_of,
)
from ft_supervisor.core.agent.step_news import StepNews
from ft_supervisor.core.agent.stillness_notice import StillnessNotice
from ft_supervisor.core.coordinator.policy import ignored
from ft_supervisor.core.protocol import agent_facts as facts
from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.actions import (
    AgentAction,
    Announce,
    DropParked,
    EndWorkers,
    EnterBarrier,
    Leave,
    ReleaseWorkers,
    Start,
    StopWorkers,
    Tell,
)
from ft_supervisor.core.protocol.events import Beat, EvidenceTaken, WorkersSeen
from ft_supervisor.core.protocol.health_types import WORKERS
from ft_supervisor.core.protocol.model import INTERRUPTED, KILL_BOUND, Cycle, Failure, Job, Node, Problem
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.settings import RestartMode
from ft_supervisor.core.protocol.signs import NodeSign
from ft_supervisor.core.transitions import check_transition
from ft_supervisor.core.words import one_line

ABANDON_MARGIN = 5.0
"""Seconds beyond grace and kill after which an agent whose workers are not gone leaves them to its daemon."""


class Lifecycle:
    """One agent's state. `do` takes the actions, in order. All times in seconds; `epoch` as in orders.Begin."""

    def __init__(
        self, job: Job, node: Node, follower: Follower, epoch: float, do: Callable[[AgentAction], None]
    ) -> None:
        self.state: AnyState = Joining()
        self.signalled = False
        """Whether something else has signalled the workers already, so that they are only to be waited for."""
        self._job = job
        self._node = node
        self._follower = follower
        self._do = do
        self._hangs = HangDetector(job, node, epoch)
        self._first_sign = FirstSign(job.per_node)
        self._steps = StepNews()
        self._notice = HangNotice(self._hangs, follower, do, self._ignores)
        self._stillness = StillnessNotice(job, follower, do)
        self._in_process = job.settings.restart is RestartMode.IN_PROCESS
        self._returned = 0
        """From how many restartable functions the workers of the cycle that runs have returned."""
        self._parked = 0
        """How many workers were parked when they were last stopped."""
        self._fenced: Cycle | None = None
        """The cycle whose fence was told last."""

    @property
    def running(self) -> Cycle | None:
        """The cycle whose workers may be alive."""
        return self.state.run.cycle if self.state.run else None

    @property
    def completed(self) -> int:
        """See messages.Register."""
        return self._returned if isinstance(self.state, Active) else 0

    @property
    def hangs(self) -> tuple[Failure, ...]:
        """See messages.Register."""
        return truncated(self._notice.failures[:1]) if isinstance(self.state, Active) else ()

    def sign(self, now: float) -> NodeSign | None:
        """See messages.Register."""
        return self._first_sign.at(now) if isinstance(self.state, Active) else None

    # -- what begins

    def repeat_success(self) -> None:
        """A former agent of the node has seen its workers succeed."""
        succeeded = self._follower.memory.succeeded
        if succeeded is not None and self.state.name is AgentState.JOINING:
            self._become(Succeeded(succeeded))

    def stand_by(self, now: float) -> None:
        """Wait for a Run. Workers that may be alive are stopped first."""
        if self.running is None:
            self._become(Standby())
        else:
            self.stop(self._job.timeouts.restart_grace, now)

    def start(self, run: messages.Run, now: float) -> None:
        """Run this cycle; no workers may be alive. The node's health is checked first, where the policy wants that."""
        health, unhealthy = self._job.settings.health, self._follower.memory.unhealthy
        if unhealthy is not None:  # the coordinator did not know when it sent this Run
            self._run_nothing(run, unhealthy)
        elif not health.before_cycle:
            self._activate(run, now)
        else:
            self._become(Checking(run))
            self._do(Tell(orders.Check(str(run.cycle))))

    def checked(self, cycle: str, problem: Problem | None, now: float) -> None:
        """The daemon has checked the node's health before `cycle`."""
        match self.state:
            case Checking(run) if str(run.cycle) == cycle:
                if problem is None:
                    self._activate(run, now)
                else:
                    self._run_nothing(run, problem)
            case _ if problem is not None:
                self.turn_unhealthy(problem)

    def _run_nothing(self, run: messages.Run, problem: Problem) -> None:
        """The node is not fit for the cycle that it is to run, and has not begun."""
        self.turn_unhealthy(problem)
        self._become(Standby())
        self.send_stopped(run.cycle)

    def _activate(self, run: messages.Run, now: float) -> None:
        self._become(Active(run))
        self._returned = self._parked = 0
        self._hangs.start(run.group_rank, now)
        self._notice.begin()
        self._first_sign.start(now)
        self._steps.begin(run.group_rank)
        self._stillness.begin(now)
        self._do(Start(run))

    def turn_unhealthy(self, problem: Problem) -> None:
        """Tell the coordinator that the node is not to be used. The first problem counts, for good."""
        if self._follower.memory.unhealthy is None:
            self._follower.remember(replace(self._follower.memory, unhealthy=problem))
            self._do(Announce(facts.AgentUnhealthy(problem)))
        self._follower.send(messages.Unhealthy, problem=self._follower.memory.unhealthy)

    # -- what becomes of the workers

    def exited(self, cycle: Cycle, failures: tuple[Failure, ...], now: float) -> None:
        """See events.WorkersExited."""
        match self.state:
            case Active(run) if run.cycle == cycle and failures:
                self._fail(cycle, failures, now)
            case Active(run) if run.cycle == cycle:
                self._follower.remember(replace(self._follower.memory, succeeded=cycle))
                self._become(Succeeded(cycle))
                self._follower.send(messages.WorkersSucceeded, cycle=cycle)
                self._do(EnterBarrier(cycle, run.group_world_size))

    def progressed(self, cycle: Cycle) -> None:
        """Remember that a worker of this cycle has made progress, if the job restarts in process."""
        memory = self._follower.memory
        if self._in_process and cycle == self.running == memory.newest != memory.progressed:
            self._follower.remember(replace(memory, progressed=cycle))

    def returned(self, cycle: Cycle, functions: int) -> None:
        """Tell the coordinator that the workers have returned from so many functions: see events.WorkersReturned."""
        match self.state:
            case Active(run) if run.cycle == cycle:
                self._returned = functions
                self._follower.send(messages.WorkersCompleted, cycle=cycle, functions=functions)

    def release(self, cycle: Cycle, functions: int) -> None:
        """Let those workers return that wait for this: all workers of `cycle` have returned from so many functions."""
        match self.state:
            case Active(run) if run.cycle == cycle:
                self._do(ReleaseWorkers(cycle, functions))

    def cannot_start(self, cycle: Cycle, reason: str, now: float) -> None:
        """See events.CannotStart. The node is at fault, not its workers: another node has to take its place."""
        self.turn_unhealthy(Problem(WORKERS, one_line(f"cannot start workers: {reason}")))
        if self.running == cycle:
            self.stop(0.0, now, park=False)  # nothing that was started has done any work

    def beat(self, beat: Beat, now: float) -> None:
        """A worker has sent something by the notify protocol. READY=1 is progress, a heartbeat is not."""
        self._hangs.beat(beat, now)
        self._stillness.beat(beat.local_rank, now)
        if beat.kind == "ready" and self.running is not None:
            self.progressed(self.running)
        if isinstance(self.state, Active) and self._first_sign.beat(beat, now):
            self._send_sign(self.state.run.cycle, now)
        self._steps.beat(beat)
        self._tell_step(now)

    def first_line(self, cycle: Cycle, now: float) -> None:
        """See events.FirstLine."""
        if isinstance(self.state, Active) and cycle == self.running and self._first_sign.line(now):
            self._send_sign(cycle, now)

    def _send_sign(self, cycle: Cycle, now: float) -> None:
        self._follower.send(messages.Training, cycle=cycle, sign=self._first_sign.at(now))

    def _tell_step(self, now: float) -> None:
        if isinstance(self.state, Active) and (step := self._steps.due(now)) is not None:
            self._follower.send(messages.AtStep, cycle=self.state.run.cycle, step=step)

    def seen(self, seen: WorkersSeen, now: float) -> None:
        """Note the workers' signs of work."""
        match self.state:
            case Active(run) if run.cycle == seen.cycle:
                self._stillness.seen(seen, now)

    def take_evidence(self, wanted: messages.TakeEvidence, now: float) -> None:
        """The coordinator wants to know what the workers do; see HangNotice."""
        match self.state:
            case Active(run) if run.cycle == wanted.cycle:
                self._notice.asked(wanted, now)

    def evidence_taken(self, taken: EvidenceTaken, now: float) -> None:
        """It is known what the workers do."""
        match self.state:
            case Active(run) if run.cycle == taken.cycle:
                self._fail(taken.cycle, self._notice.taken(taken, now), now)

    def _fail(self, cycle: Cycle, failures: Sequence[Failure], now: float) -> None:
        """Tell the coordinator of the failures that no rule ignores, and stop the other workers."""
        counted = [failure for failure in failures if not self._ignores(failure)]
        if ended := tuple(failure.local_rank for failure in failures if failure.lives and failure not in counted):
            self._do(EndWorkers(cycle, ended))
        if not counted:
            return
        for failure in counted:
            self._do(Announce(facts.WorkerFailed(cycle, failure)))
        first = truncate_failures(counted, self._job.settings.rules, self._node.name)
        self._follower.remember(replace(self._follower.memory, failures=first))
        self._follower.send(messages.WorkersFailed, cycle=cycle, failures=first)
        self.stop(self._job.timeouts.restart_grace, now)

    def _ignores(self, failure: Failure) -> bool:
        """A rule says that the other workers go on."""
        if not ignored(self._job.settings.rules, failure, self._node.name):
            return False
        self._do(Announce(facts.FailureIgnored(failure)))
        return True

    # -- their end

    def stop(self, grace: float, now: float, signal: str = "SIGTERM", *, park: bool = True) -> None:
        """Stop the workers that may be alive, unless an earlier stop already ends them as soon. `park`: they may be
        parked instead, if the job restarts in process."""
        former = workers_of(self.state)
        if former is None:
            return
        park = park and former.park and self._in_process
        bound = self._job.bound_of_stop(grace) if park else grace
        workers = Stopping(former.run, min(former.gone_by, now + bound + KILL_BOUND + ABANDON_MARGIN), park)
        if workers == former:
            return
        if isinstance(self.state, Closing):
            self.state = Closing(self.state.leave, workers)
        else:
            self._become(workers)
        self._do(StopWorkers(workers.run.cycle, grace, "" if self.signalled else signal, park))

    def fence(self, now: float) -> None:
        """Stop the workers without grace: another node may be about to run their replacement."""
        if self._fenced != self.running:
            self._fenced = self.running
            self._do(Announce(facts.Fenced(self._job.timeouts.fence)))
        self.stop(0.0, now, park=False)

    def drop_parked(self) -> None:
        """All workers of a cycle were to be new processes: no present one goes on, wherever it ran."""
        self._parked = 0
        self._do(DropParked())

    def gone(self, cycle: Cycle, parked: int) -> None:
        """Note that of the workers of `cycle` so many are parked, and nothing else is left."""
        self._parked = parked
        if isinstance(self.state, Closing):
            self._leave(self.state.leave)
        else:
            self.send_stopped(cycle)
            self._become(Standby())

    def send_stopped(self, cycle: Cycle) -> None:
        """Tell the coordinator that nothing of `cycle` runs here."""
        progressed = self._follower.memory.progressed == cycle
        port, parked = self._follower.port, self._parked
        self._follower.send(messages.WorkersStopped, cycle=cycle, port=port, parked=parked, progressed=progressed)

    def end(self, leave: Leave, grace: float, now: float, signal: str = "SIGTERM") -> None:
        """Leave as soon as no worker is left. What ends the node first decides how; only a verdict overrides it."""
        match self.state:
            case Closing(_, None):
                return
            case Closing(former, workers) if former.verdict is None and leave.verdict is not None:
                self.state = Closing(leave, workers)
            case Closing():
                pass
            case _:
                self._become(Closing(leave, workers_of(self.state)))
        if self.running is None:
            self._leave(leave)
        else:
            self.stop(grace, now, signal, park=False)

    def _leave(self, leave: Leave) -> None:
        self.state = Closing(leave, None)
        self._follower.send(messages.Goodbye, verdict=self._follower.memory.verdict)
        self._do(leave)

    def tick(self, now: float) -> None:
        """Look for workers that hang, and tell their step."""
        self._tell_step(now)
        if isinstance(self.state, Active):
            cycle = self.state.run.cycle
            self._stillness.tick(cycle, now)
            self._fail(cycle, self._notice.tick(cycle, now), now)

    def abandon_if_due(self, now: float) -> None:
        """Leave the workers to the daemon if they cannot be ended."""
        workers = workers_of(self.state)
        if workers is not None and now >= workers.gone_by:
            code = self.state.leave.code if isinstance(self.state, Closing) else INTERRUPTED
            self._do(Leave(code, self._follower.memory.verdict, "workers that can't be ended"))

    def _become(self, state: AnyState) -> None:
        check_transition(TRANSITIONS, self.state.name, state.name)
        self.state = state
        self._do(Announce(fact_of(state)))

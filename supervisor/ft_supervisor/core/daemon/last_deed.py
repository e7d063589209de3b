"""The last deed: what a daemon asks Slurm to do when the job has ended and no other process of its node is left.

Two daemons of a job can have one. The closer is the daemon whose own coordinator has closed the job. The deputy is
another node's daemon, which the coordinator has named because Slurm did not answer the coordinator's own node.

Two facts decide whether this node has to end the job in Slurm: which nodes the coordinator has lost, and what slurmctld
says of the batch host. Both are needed. The coordinator knows first of a host that has just died. A host whose slurmd
has died, or that slurmctld cannot reach, trains on: only slurmctld knows that its script cannot end the job any more.

    slurmctld says that the       the coordinator has             the coordinator has
    batch host is                 lost the batch host             not lost it
    ----------------------------  ------------------------------  ------------------------------------------
    a member of the job           wait until Slurm gives it up    do nothing: its script ends the job
    a member that is silent       wait until Slurm gives it up    wait, and stop when the host answers again
    not a member any more         end the job                     end the job
    (no answer)                   wait until Slurm gives it up    do nothing

On the batch host itself the script waits for this very daemon: there only a host that Slurm has taken out counts.
ft_slurm.completion does the waiting. The deputy hears no nodes, so that it goes by slurmctld's answer alone; it then
waits for the last grace of the other nodes' workers, or for the signal with which `launch` ends srun.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ft_supervisor.core.protocol import daemon_facts as facts
from ft_supervisor.core.protocol.actions import (
    Announce,
    AskBatchHost,
    CompleteJob,
    DaemonAction,
    ForbidRequeue,
    RequeueJob,
    StopCompleting,
    WriteComment,
)
from ft_supervisor.core.protocol.events import (
    BatchHost,
    BatchHostAnswered,
    DaemonEvent,
    Deed,
    DeedDone,
    InBatchJob,
    Signalled,
)
from ft_supervisor.core.protocol.model import KILL_BOUND, Again, Job, Outcome
from ft_supervisor.core.protocol.orders import VerdictDecided
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.summary import head, line
from ft_supervisor.core.transitions import check_transition

HOST_BOUND = 4.0
"""Seconds for the answer about the batch host, counted from when it is needed. The question is asked first of all."""

SIGNAL_BOUND = 2.0
"""Seconds that ending the job still gets after a signal: a job that has just been ended is signalled, too."""


class Step(StrEnum):
    """What the daemon is waiting for."""

    BEGINNING = "beginning"
    COMMENTING = "commenting"
    FORBIDDING = "forbidding"
    REQUEUEING = "requeueing"
    ASKING = "asking"
    WAITING = "waiting"
    COMPLETING = "completing"
    OVER = "over"


TRANSITIONS: Mapping[Step, Mapping[Step, str]] = {
    Step.BEGINNING: {
        Step.COMMENTING: "the closer, and the policy wants a comment",
        Step.FORBIDDING: "the closer, without a comment",
        Step.ASKING: "the deputy",
    },
    Step.COMMENTING: {Step.FORBIDDING: "the comment was written, or Slurm did not take it"},
    Step.FORBIDDING: {
        Step.REQUEUEING: "the verdict asks for another run",
        Step.ASKING: "the closer",
        Step.COMPLETING: "the deputy",
    },
    Step.REQUEUEING: {
        Step.OVER: "Slurm runs the job again",
        Step.ASKING: "the closer, and Slurm does not requeue",
        Step.COMPLETING: "the deputy, and Slurm does not requeue",
    },
    Step.ASKING: {
        Step.OVER: "the batch script ends the job, or Slurm does not answer",
        Step.COMPLETING: "the closer, and the script cannot end the job",
        Step.WAITING: "the deputy, and the script cannot end the job",
    },
    Step.WAITING: {Step.FORBIDDING: "the last grace is over, or a signal came"},
    Step.COMPLETING: {Step.OVER: "the job was completed, or cannot be, or a signal came"},
    Step.OVER: {},
}

_ANSWERS = {
    Step.COMMENTING: Deed.COMMENT,
    Step.FORBIDDING: Deed.FORBID_REQUEUE,
    Step.REQUEUEING: Deed.REQUEUE,
    Step.COMPLETING: Deed.COMPLETE,
}
"""The deed whose end each step waits for."""


class LastDeed:
    """Pure. `begin` once, and then `handle` with each event until `over`. All times in seconds."""

    def __init__(self, job: Job, node: str, batch: InBatchJob, decided: VerdictDecided, *, deputy: bool) -> None:
        """`node`: this node's name. `decided`: the job's verdict, and with the closer the nodes that are lost."""
        self.step = Step.BEGINNING
        self.due: float | None = None
        """When `handle` has to be called at the latest; None while only an event matters."""
        self._job = job
        self._node = node
        self._batch = batch
        self._verdict = decided.verdict
        self._decided = decided
        self._deputy = deputy
        self._host: BatchHostAnswered | None = None
        self._signal = ""
        self._actions: list[DaemonAction] = []

    @property
    def over(self) -> bool:
        """Whether nothing is left to be done."""
        return self.step is Step.OVER

    def begin(self, now: float) -> list[DaemonAction]:
        """Return the first actions."""
        self._actions = [AskBatchHost()]
        if self._deputy:
            self._ask(now)
        elif self._job.settings.accounting.comment:
            self._become(Step.COMMENTING)
            run_id, verdict = self._job.run_id, self._verdict
            self._do(WriteComment(line(self._decided.summary, verdict, run_id), head(verdict, run_id)))
        else:
            self._forbid()
        return self._actions

    def handle(self, event: DaemonEvent, now: float) -> list[DaemonAction]:
        """Take one event, and return what to do."""
        self._actions = []
        match event:
            case Signalled(name):
                self._signal = self._signal or name
            case BatchHostAnswered():
                self._host = event
            case DeedDone(deed, done) if deed is _ANSWERS.get(self.step):
                self._go_on(done, now)
        self._look(now)
        return self._actions

    def validate(self) -> None:
        """Raise AssertionError where the fields contradict the step."""
        assert (self.due is not None) <= (self.step in (Step.ASKING, Step.WAITING, Step.COMPLETING)), self.step

    # -- steps

    def _look(self, now: float) -> None:
        """Go on where time, a signal or the answer about the batch host allows it."""
        late = self.due is not None and now >= self.due
        if self.step is Step.ASKING and (self._host is not None or late):
            self._decide(now)
        elif self.step is Step.WAITING and (self._signal or late):
            self._signal, self.due = "", None
            self._forbid()
        elif self.step is Step.COMPLETING and self._signal:
            if self.due is None:
                self.due = now + SIGNAL_BOUND
            elif late:
                self._do(StopCompleting(f"{self._signal} came"))
                self._finish()

    def _go_on(self, done: bool, now: float) -> None:
        """The deed of this step has come to its end. `done`: it has succeeded."""
        match self.step:
            case Step.COMMENTING:
                self._forbid()
            case Step.FORBIDDING if self._verdict.again is Again.REQUEUE:
                self._become(Step.REQUEUEING)
                self._do(RequeueJob())
            case Step.REQUEUEING if done:
                self._finish()
            case Step.FORBIDDING | Step.REQUEUEING if self._deputy:
                self._complete()
            case Step.FORBIDDING | Step.REQUEUEING:
                self._ask(now)
            case Step.COMPLETING:
                self._finish()

    def _forbid(self) -> None:
        self._become(Step.FORBIDDING)
        self._do(ForbidRequeue(self._verdict.exit_code))

    def _ask(self, now: float) -> None:
        """Wait for the answer about the batch host, unless it is not needed or already here."""
        self._become(Step.ASKING)
        self.due = now + HOST_BOUND
        if self._lost or self._host is not None:
            self._decide(now)

    def _decide(self, now: float) -> None:
        self.due = None
        if not self._is_ours():
            self._finish()
        elif self._deputy:
            self._wait(now)
        else:
            self._complete()

    def _wait(self, now: float) -> None:
        """Give the workers of other nodes their last grace, of which only the coordinator hears."""
        self._become(Step.WAITING)
        grace = 0.0 if self._verdict.outcome is Outcome.SUCCESS else self._job.last_grace(self._verdict) + KILL_BOUND
        seconds = grace + self._job.timeouts.close_grace
        self.due = now + seconds
        self._do(Announce(facts.DeputyStandsIn(self._batch.job_id, self._batch.host, seconds)))

    def _complete(self) -> None:
        self._become(Step.COMPLETING)
        self._do(CompleteJob(self._verdict.exit_code, host_lost=self._lost))

    def _finish(self) -> None:
        self.due = None
        self._become(Step.OVER)

    # -- the table above

    @property
    def _lost(self) -> bool:
        """Whether the coordinator has lost the batch host. On that host only its own agent can be meant."""
        host, nodes = self._batch.host, self._job.nodes
        return host != self._node and host in nodes and nodes.index(host) in parse_ranks(self._decided.lost)

    def _is_ours(self) -> bool:
        if self._lost:
            return True
        found = self._host or BatchHostAnswered(None, f"the batch host: not done after {HOST_BOUND:g} s")
        if found.host is None:
            self._do(Announce(facts.BatchHostUnknown(self._batch.job_id, self._batch.host, found.why)))
        silent = found.host is BatchHost.SILENT and self._batch.host != self._node
        return found.host is BatchHost.GONE or silent

    def _become(self, step: Step) -> None:
        check_transition(TRANSITIONS, self.step, step)
        self.step = step

    def _do(self, action: DaemonAction) -> None:
        self._actions.append(action)

"""Keeps the account of a job's time (core.protocol.cost) for one coordinator: for status, metrics and Slurm's comment.

It only reads messages and announced facts, the same that the report finds in the coordinator's journal. After a
takeover it begins anew, and is partial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ft_supervisor.core.coordinator.current_cycle import CurrentCycle
from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Announce, CoordinatorAction, Fact
from ft_supervisor.core.protocol.cost import Cost, CycleTimes, cost, gpus_of, happened
from ft_supervisor.core.protocol.model import Cycle, Failure, Job
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.signs import CycleSigns, NodeSign, beats


@dataclass
class _CycleAccount:
    """What is known of one cycle. `left`: of its nodes `group` those that may run something of it."""

    name: Cycle
    began: float | None
    group: frozenset[int]
    left: set[int]
    signs: CycleSigns = field(default_factory=CycleSigns)
    ended: float | None = None
    failed: bool = False
    cause: Cause | None = None
    failures: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    stopped: float | None = None
    decided: float | None = None
    saved: float | None = None
    step: int | None = None

    def forget_nodes(self) -> None:
        """Another cycle has begun: only the times of this one count. Lists of nodes would grow with each cycle."""
        self.group, self.left = frozenset(), set()
        self.signs.forget_nodes()

    def times(self, *, beat: bool) -> CycleTimes:
        return CycleTimes(
            first=self.name.n == 0,
            began=self.began,
            started=self.signs.started,
            training=self.signs.beat if beat else self.signs.line,
            happened=happened(self.failures, self.lost, self.began, node_lost=self.cause is Cause.NODE_LOST),
            ended=self.ended,
            failed=self.failed,
            stopped=self.stopped,
            decided=self.decided,
            saved=self.saved,
            step=self.step,
        )


class Account:
    """One coordinator's. All times in seconds of its clock; `epoch` is added to one to get seconds since the epoch.
    `start`: when its node's daemon began to look for the job's first coordinator."""

    def __init__(self, job: Job, start: float, epoch: float) -> None:
        self._job = job
        self._epoch = epoch
        self.start = start
        self._partial = False
        self._over = False
        self._cycles: list[_CycleAccount] = []
        self._signs: dict[int, tuple[Cycle, NodeSign, float]] = {}
        """The newest sign of each node, and when it came."""
        self._gpus: dict[int, int] = {}
        """Those of each node that has told them."""

    def saw(self, actions: Sequence[CoordinatorAction], current: CurrentCycle, now: float) -> None:
        """Take the actions that followed from one event. `current`: the newest cycle after it."""
        found = [action.fact for action in actions if isinstance(action, Announce)]
        for fact in found:
            if isinstance(fact, facts.TookCharge) and fact.promises is not None:
                self.start, self._partial, self._cycles, self._over = now, True, [], False
        for fact in found:
            self._take(fact, now)
        if current.name is not None and (not self._cycles or self._cycles[-1].name < current.name):
            self._begin(current, now)

    def cost(self, now: float, *, over: bool = False) -> Cost:
        """Return the account as of `now`. `over`: the job ends now, so that nothing follows the last cycle."""
        beat = beats(self._cycles)
        return cost(
            self.start,
            max(now, self.start),
            [cycle.times(beat=beat) for cycle in self._cycles],
            over=over or self._over,
            partial=self._partial,
            nodes=len(self._job.nodes),
            per_node=self._job.per_node,
            gpus=gpus_of(self._gpus, len(self._job.nodes)),
        )

    @property
    def training(self) -> bool:
        """Whether the newest cycle has given its sign of training, and has not ended."""
        if not self._cycles or self._cycles[-1].ended is not None:
            return False
        return self._cycles[-1].times(beat=beats(self._cycles)).training is not None

    def _begin(self, current: CurrentCycle, now: float) -> None:
        assert current.name is not None
        if self._cycles:
            self._cycles[-1].forget_nodes()
        began = now if current.is_ours else None
        self._cycles.append(_CycleAccount(current.name, began, frozenset(current.group), set(current.group)))
        for node, (cycle, sign, at) in self._signs.items():
            if cycle == current.name:
                self._sign(node, cycle, sign, at)

    def hear(self, message: messages.ToCoordinator, now: float) -> None:
        """Take a message that the coordinator has accepted, before the actions that it leads to."""
        if isinstance(message, messages.Register) and message.node.gpus is not None:
            self._gpus[message.infra_rank] = message.node.gpus
        match message:
            case messages.Training(infra_rank=node, cycle=cycle, sign=sign):
                self._signs[node] = cycle, sign, now
                self._sign(node, cycle, sign, now)
            case messages.Register(running=Cycle() as cycle, sign=NodeSign() as sign):
                self._signs[message.infra_rank] = cycle, sign, now
                self._sign(message.infra_rank, cycle, sign, now)
            case (
                messages.WorkersFailed(cycle=cycle, failures=failures)
                | messages.HangNoticed(cycle=cycle, failures=failures)
            ):
                self._fail(cycle, failures)
            case (
                messages.WorkersStopped(cycle=cycle)
                | messages.WorkersSucceeded(cycle=cycle)
                | messages.AgentGone(cycle=Cycle() as cycle)
            ):
                self._leave(message.infra_rank, cycle, now)
            case messages.Goodbye():
                self._leave(message.infra_rank, None, now)

    def read_step(self, step: int | None, age: float | None, now: float) -> None:
        """Take what the job's step file has after a failure; see StepRead."""
        if (newest := self._newest(None)) is not None and newest.failed and step is not None and age is not None:
            newest.step, newest.saved = step, now - age

    def _newest(self, cycle: Cycle | None) -> _CycleAccount | None:
        """Return the newest cycle, if it is this one; None stands for any."""
        return self._cycles[-1] if self._cycles and cycle in (None, self._cycles[-1].name) else None

    def _sign(self, node: int, cycle: Cycle, sign: NodeSign, at: float) -> None:
        if (newest := self._newest(cycle)) is not None and node in newest.left:
            newest.signs.add(node, sign.sign, at - sign.started, at - sign.signed)

    def _fail(self, cycle: Cycle, failures: Sequence[Failure]) -> None:
        if (newest := self._newest(cycle)) is not None:
            newest.failures += [each.time - each.silent - self._epoch for each in failures if each.time]

    def _leave(self, node: int, cycle: Cycle | None, now: float) -> None:
        if (newest := self._newest(cycle)) is not None and node in newest.left:
            newest.left.discard(node)
            if not newest.left:
                newest.stopped = now

    def _take(self, fact: Fact, now: float) -> None:
        newest = self._newest(None)
        match fact:
            case facts.VerdictProposed():
                self._over = True
                if newest is not None and newest.ended is None:
                    newest.ended = now
            case facts.NodeLost(infra_rank=node, heard=heard) if newest is not None and node in newest.group:
                newest.lost.append(heard)
                self._leave(node, None, now)
            case facts.CycleFailed(cause=cause) if newest is not None and newest.ended is None:
                newest.ended, newest.failed, newest.cause = now, True, cause
            case facts.Decided(gives_up=False, cause=cause) if newest is not None and newest.failed:
                newest.decided, newest.cause = now, cause

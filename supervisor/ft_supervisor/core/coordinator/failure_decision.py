"""Collects the troubles that end a cycle, and decides what they lead to.

The decision waits until every node has stopped: the peers of a failed worker crash as well, and may report before it
does. Of all troubles the one with the earliest rule decides; of several with that rule
the first that was reported, but a worker that lost its peer gives way to one that failed by itself. All times in
seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ft_supervisor.core.coordinator import policy, start_crash
from ft_supervisor.core.coordinator.current_cycle import CurrentCycle
from ft_supervisor.core.coordinator.policy import Decision, MayGo, Trouble
from ft_supervisor.core.coordinator.start_crash import StartCrash
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.lost_peer import lost_a_peer
from ft_supervisor.core.protocol.model import KILL_BOUND, Again, Cycle, Ending, Job, Outcome, Verdict
from ft_supervisor.core.protocol.settings import Match, Response, RestartMode

STEP_BOUND = 2.0
"""Seconds within which the file with the checkpoint's step has to be read."""


JOB_STOP_MARGIN = 10.0
"""Seconds beyond grace, kill and node_lost until a node that cannot end its workers ends the job."""

STEADY_CYCLE = 300.0
"""Seconds that a cycle has to run for its failure to be the first in a row."""


class FailureDecision:
    """For one failed cycle after the other: `begin` starts the next one's. `ledger`: the newest that is known."""

    def __init__(self, job: Job, now: float) -> None:
        self.ledger = Ledger()
        self.since = now
        self.decision: Decision | None = None
        """The decision for another cycle, once it is made and charged; None before."""
        self.not_before = now
        """When that cycle may begin."""
        self._job = job
        self._rules = job.settings.rules
        self._worst: tuple[tuple[float, bool], int | None, Trouble] | None = None
        self._failed: list[int] = []
        """The node of each worker that was reported to have failed."""
        self._bad: set[int] = set()
        self._unheard: set[int] = set()
        self._suspected = False
        self._step: int | None = None
        self._step_read = True
        self._last = True
        self._crash = StartCrash(enabled=job.settings.fail_fast)
        self._cycle: CurrentCycle | None = None

    @property
    def grace(self) -> float:
        """Seconds that workers get after SIGTERM: more if it looks like the end of the job."""
        return self._job.timeouts.stop_grace if self._last else self._job.timeouts.restart_grace

    def begin(
        self, trouble: Trouble, running: Collection[int], cycle: CurrentCycle, began: float, wall: float, now: float
    ) -> bool:
        """The cycle, which `began` then, cannot go on. `running`: its nodes that get Stop; `wall`: seconds since the
        epoch. Return whether they get it at once, and not upon `release`."""
        if now - began >= STEADY_CYCLE:
            self.ledger = self.ledger.steady()
        self._cycle = cycle
        self.since, self.not_before, self.decision = now, now, None
        self._worst, self._bad, self._unheard, self._suspected = None, set(), set(running), False
        self._failed = []
        self._step, self._step_read = None, not self._job.settings.step_file
        self._add(trouble)
        self._last = self._preview(wall).verdict is not None
        if self.ledger.step is not None:
            self._crash.moved()
        self._crash.begin(trouble, cycle.group, None if cycle.started is None else now - cycle.started)
        patient = not self._last and self._is_for_any(policy.find(self._rules, trouble, self._name(trouble)))
        hold = self._crash.hold(now) if patient else 0.0
        self.since += hold
        return not hold

    def release(self, now: float) -> bool:
        """Return True once, when the nodes that did not get Stop at once are to get it."""
        return self._crash.release(now)

    def add(self, trouble: Trouble, wall: float) -> bool:
        """Add one more trouble to this cycle; however many there are, they are charged once. Return whether it no
        longer looks like the end of the job, so that the nodes need another Stop with less grace."""
        if self.decision is not None:
            return False
        self._add(trouble)
        self._crash.add(trouble)
        was_last, self._last = self._last, self._last and self._preview(wall).verdict is not None
        return was_last and not self._last

    @property
    def trouble(self) -> Trouble | None:
        """The trouble that decides, as far as is known."""
        return self._worst[2] if self._worst else None

    @property
    def consequences(self) -> int:
        """How many workers of other nodes failed because of the loss of the node that decides; 0 if none decides, or
        it was still heard when the cycle ended."""
        trouble = self.trouble
        if trouble is None or trouble.heard is None or trouble.heard > self.since:
            return 0
        return sum(node != trouble.infra_rank for node in self._failed)

    def heard(self, infra_rank: int) -> None:
        """Note that this node has answered Stop, or is lost."""
        self._unheard.discard(infra_rank)

    def suspects(self, now: float) -> set[int]:
        """Return the nodes that have not answered Stop in time; only once for each cycle."""
        if self._suspected or now - self.since < self._job.timeouts.probe:
            return set()
        self._suspected = True
        return set(self._unheard)

    def overdue(self, now: float) -> float | None:
        """The bound within which all nodes should have stopped, if it is over."""
        bound = self._job.bound_of_stop(self.grace) + KILL_BOUND + self._job.timeouts.node_lost + JOB_STOP_MARGIN
        return bound if now - self.since >= bound else None

    def read_step(self, step: int | None) -> None:
        """Note the step of the newest checkpoint; None if there is none that can be read."""
        self._step, self._step_read = step, True

    def last_word(self, wall: float, now: float) -> Decision | None:
        """Return the decision if it ends the job; None before every node has answered, and within `probe`."""
        early = now - self.since < self._job.timeouts.probe and not self._crash.everywhere
        if self._waits_for_step(now) or early or self._unheard:
            return None
        decision = self._preview(wall, progressed=self._cycle is not None and self._cycle.progressed)
        return decision if decision.verdict is not None else None

    def settle(self, wall: float, now: float, may_go: MayGo, *, progressed: bool) -> Decision | None:
        """Decide for another cycle, as all nodes have stopped. None if the step is not read yet, or the job ends.
        `progressed`: whether the cycle has made progress, according to the nodes' reports."""
        if self._waits_for_step(now) or (decision := self._preview(wall, may_go, progressed)).verdict is not None:
            return None
        if progressed:
            self._crash.moved()
        self.decision, self.ledger, self.not_before = decision, decision.ledger, now + decision.delay
        return decision

    @property
    def fresh(self) -> bool:
        """Whether all workers of the next cycle are new processes. Spares may have parked ones before the first."""
        how = self.decision.how if self.decision is not None else self._job.settings.restart
        return how is not RestartMode.IN_PROCESS

    def enter_fresh(self, cycle: Cycle) -> None:
        """Enter into the ledger that `cycle` begins, if it is fresh and processes may go on otherwise. So each node and
        each successor learns of it, also one that has no part in the cycle."""
        if self.fresh and self._job.settings.restart is RestartMode.IN_PROCESS:
            self.ledger = replace(self.ledger, fresh=cycle)

    def _waits_for_step(self, now: float) -> bool:
        return not self._step_read and now - self.since < STEP_BOUND

    def _add(self, trouble: Trouble) -> None:
        rule = policy.find(self._rules, trouble, self._name(trouble))
        weight = policy.weight(self._rules, rule)
        if rule is not None and self._rules[rule].response is Response.REPLACE_NODE and trouble.infra_rank is not None:
            self._bad.add(trouble.infra_rank)
        if trouble.failure is not None and trouble.infra_rank is not None:
            self._failed.append(trouble.infra_rank)
        weighs = weight, trouble.failure is not None and lost_a_peer(trouble.failure)
        if self._worst is None or weighs < self._worst[0]:
            self._worst = weighs, rule, trouble

    def _name(self, trouble: Trouble) -> str:
        return "" if trouble.infra_rank is None else self._job.nodes[trouble.infra_rank]

    def _preview(self, wall: float, may_go: MayGo = lambda _: True, progressed: bool = False) -> Decision:
        assert self._worst is not None
        _, rule, trouble = self._worst
        if self._fails_at_once(rule, progressed):
            reason = start_crash.reason(trouble)
            verdict = Verdict(Outcome.FAILED, reason, Again.NEVER, Ending.FAILS_AT_ONCE)
            return Decision(Response.FAIL, reason, None, self.ledger, verdict=verdict)
        return policy.decide(
            self._rules,
            self.ledger,
            trouble,
            rule,
            bad=self._bad,
            at=wall,
            step=self._step,
            steps=bool(self._job.settings.step_file),
            seed=self._job.run_id,
            may_go=may_go,
            restart=self._job.settings.restart,
            progressed=progressed,
        )

    def _fails_at_once(self, rule: int | None, progressed: bool) -> bool:
        """Whether the workers of a job that has never done anything crash at their start, twice and everywhere. A rule
        that names such failures has its way."""
        trained = progressed or self._step is not None
        return not trained and self._crash.everywhere and self._is_for_any(rule)

    def _is_for_any(self, rule: int | None) -> bool:
        """Whether this rule restarts, and names no failures."""
        chosen = None if rule is None else self._rules[rule]
        return chosen is not None and chosen.match == Match() and chosen.response is Response.RESTART

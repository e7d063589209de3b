"""How a cycle that cannot go on comes to its end, and what it leads to.

That is decided when all of it has stopped: the peers of what really failed crash too, and their word can be faster. Of
all that went wrong the earliest rule decides. All times in seconds.
"""

from __future__ import annotations

from collections.abc import Collection

from ft_supervisor.core import policy
from ft_supervisor.core.ledger import Ledger
from ft_supervisor.core.model import Job
from ft_supervisor.core.policy import Decision, MayGo, Trouble
from ft_supervisor.core.settings import Response

STEP_BOUND = 2.0
"""Seconds that the file with the checkpoint's step gets."""


class Ending:
    """Of one cycle after the other; `begin` is the next one's. `ledger` is the newest that is known."""

    def __init__(self, job: Job, now: float) -> None:
        self.ledger = Ledger()
        self.since = now
        self.decision: Decision | None = None
        """That there is to be another cycle: certain, and charged."""
        self.not_before = now
        """When that may begin."""
        self._job = job
        self._rules = job.settings.rules
        self._worst: tuple[float, int | None, Trouble] | None = None
        self._bad: set[int] = set()
        self._unheard: set[int] = set()
        self._suspected = False
        self._step: int | None = None
        self._step_read = True
        self._last = True

    @property
    def grace(self) -> float:
        """What the workers get: more if it looks like the end of the job."""
        return self._job.timeouts.stop_grace if self._last else self._job.timeouts.restart_grace

    def begin(self, trouble: Trouble, running: Collection[int], wall: float, now: float) -> None:
        """The cycle cannot go on. `running`: its nodes that are to be told; `wall`: seconds since the epoch."""
        self.since, self.not_before, self.decision = now, now, None
        self._worst, self._bad, self._unheard, self._suspected = None, set(), set(running), False
        self._step, self._step_read = None, not self._job.settings.step_file
        self._add(trouble)
        self._last = self._preview(wall).verdict is not None

    def add(self, trouble: Trouble, wall: float) -> bool:
        """One more trouble; each costs the same, however many there are. Whether it is not the end of the job after
        all, and the nodes are to be told so."""
        if self.decision is not None:
            return False
        self._add(trouble)
        was_last, self._last = self._last, self._last and self._preview(wall).verdict is not None
        return was_last and not self._last

    @property
    def trouble(self) -> Trouble | None:
        """The one that decides, as far as is known."""
        return self._worst[2] if self._worst else None

    def heard(self, infra_rank: int) -> None:
        """This node has answered, or is lost."""
        self._unheard.discard(infra_rank)

    def suspects(self, now: float) -> set[int]:
        """Who has not answered in time; told once."""
        if self._suspected or now - self.since < self._job.timeouts.probe:
            return set()
        self._suspected = True
        return set(self._unheard)

    def read_step(self, step: int | None) -> None:
        """The step of the newest checkpoint; None: there is none that can be read."""
        self._step, self._step_read = step, True

    def last_word(self, wall: float, now: float) -> Decision | None:
        """The decision that ends the job: once everybody has had the time to say why, and has answered."""
        if self._waits_for_step(now) or now - self.since < self._job.timeouts.probe or self._unheard:
            return None
        decision = self._preview(wall)
        return decision if decision.verdict is not None else None

    def settle(self, wall: float, now: float, may_go: MayGo) -> Decision | None:
        """All have stopped: `decision`, just now; None if it is not time yet, or the end."""
        if self._waits_for_step(now) or (decision := self._preview(wall, may_go)).verdict is not None:
            return None
        self.decision, self.ledger, self.not_before = decision, decision.ledger, now + decision.delay
        return decision

    def _waits_for_step(self, now: float) -> bool:
        return not self._step_read and now - self.since < STEP_BOUND

    def _add(self, trouble: Trouble) -> None:
        name = "" if trouble.infra_rank is None else self._job.nodes[trouble.infra_rank]
        rule = policy.find(self._rules, trouble, name)
        weight = policy.weight(self._rules, rule)
        if rule is not None and self._rules[rule].response is Response.REPLACE_NODE and trouble.infra_rank is not None:
            self._bad.add(trouble.infra_rank)
        if self._worst is None or weight < self._worst[0]:
            self._worst = weight, rule, trouble

    def _preview(self, wall: float, may_go: MayGo = lambda _: True) -> Decision:
        assert self._worst is not None
        _, rule, trouble = self._worst
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
        )

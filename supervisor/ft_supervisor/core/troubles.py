"""All that has gone wrong with one cycle, and what it leads to.

That is decided when all of it has stopped: the peers of what really failed crash too, and their word can be faster.
"""

from __future__ import annotations

from ft_supervisor.core import policy
from ft_supervisor.core.ledger import Ledger
from ft_supervisor.core.model import Job
from ft_supervisor.core.policy import Decision, Trouble
from ft_supervisor.core.settings import Response


class Troubles:
    """Of the present cycle. `ledger` is the newest that is known."""

    def __init__(self, job: Job) -> None:
        self.ledger = Ledger()
        self.first: Trouble | None = None
        """What was heard first: why the cycle was stopped."""
        self._job = job
        self._rules = job.settings.rules
        self._worst: tuple[float, int | None, Trouble] | None = None
        self._bad: set[int] = set()

    def clear(self) -> None:
        """A new cycle begins."""
        self.first, self._worst, self._bad = None, None, set()

    def add(self, trouble: Trouble) -> None:
        """One more. Each costs the same, however many there are."""
        self.first = self.first or trouble
        name = "" if trouble.infra_rank is None else self._job.nodes[trouble.infra_rank]
        rule = policy.find(self._rules, trouble, name)
        weight = policy.weight(self._rules, rule)
        if rule is not None and self._rules[rule].response is Response.REPLACE_NODE and trouble.infra_rank is not None:
            self._bad.add(trouble.infra_rank)
        if self._worst is None or weight < self._worst[0]:
            self._worst = weight, rule, trouble

    def decide(self, at: float, step: int | None) -> Decision:
        """What they lead to, as far as is known; see policy.decide. There must be one."""
        assert self._worst is not None
        _, rule, trouble = self._worst
        return policy.decide(
            self._rules, self.ledger, trouble, rule, bad=self._bad, at=at, step=step, seed=self._job.run_id
        )

    def where(self, decision: Decision) -> str | None:
        """The rule for people: its place, "FILE:LINE"."""
        return None if decision.rule is None else f"{self._rules[decision.rule].where} (rule {decision.rule + 1})"

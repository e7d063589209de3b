"""Makes notices of facts: what a person or a program may want to be told at once. Pure.

A notice's `id` is the same for the same event, whichever coordinator sends it: after a takeover one may come twice, and
the second one can be told by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.model import Cycle, Verdict
from ft_supervisor.core.protocol.settings import NoticeKind


@dataclass(frozen=True)
class Notice:
    """One event. `text`: one line for people. `cycle`: the cycle that it is about, None for none. `exit_code`: of a
    verdict."""

    id: str
    kind: NoticeKind
    text: str
    cycle: Cycle | None = None
    exit_code: int | None = None


_MAY_CHANGE_SPARES = (facts.NodeRegistered, facts.CycleStarted, facts.NodeLost, facts.NodeUnhealthy, facts.TookCharge)


class Notices:
    """Those of one coordinator."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._spares: int | None = None
        """The spares when they were last counted; None before the first cycle."""
        self._counts = False
        """Whether a fact since then may have changed their number."""

    def of(self, fact: Fact, cycle: Cycle | None) -> list[Notice]:
        """Return the notices that a fact leads to. `cycle`: the newest."""
        self._counts = self._counts or isinstance(fact, _MAY_CHANGE_SPARES)
        if isinstance(fact, facts.NodePromoted):  # it was a spare, also if none had been counted yet
            self._spares = max(self._spares or 0, 1)
        found = []
        match fact:
            case facts.CycleStarted(begun, after=after) if begun.n:
                found.append(self._restart(begun, f"the training goes on in cycle {begun}: {after or fact.choice}"))
            case facts.TookCharge() if fact.takeover and cycle is not None and cycle.n:
                # the former coordinator may have died before it could tell
                found.append(self._restart(cycle, f"the training goes on in cycle {cycle}"))
            case facts.HangExplained(hung, reason):
                found.append(Notice(f"{self._run_id}/no_progress/{hung}", NoticeKind.NO_PROGRESS, reason, hung))
            case facts.VerdictClosed(verdict):
                found.append(self._verdict(verdict))
        return found

    def low(self, cycle: Cycle | None, spares: Callable[[], int]) -> list[Notice]:
        """Return the notice that the last spare is lost. For each heartbeat, and not for each fact: `spares`, which
        counts the standbys that can replace a node, looks at all nodes, and hundreds may be lost at the same time."""
        if cycle is None or not self._counts:
            return []
        self._counts = False
        before, self._spares = self._spares, spares()
        if self._spares or not before:
            return []
        text = "no spare is left: a node that is lost now cannot be replaced"
        return [Notice(f"{self._run_id}/spares_low/{cycle}", NoticeKind.SPARES_LOW, text, cycle)]

    def _restart(self, cycle: Cycle, text: str) -> Notice:
        return Notice(f"{self._run_id}/restart/{cycle}", NoticeKind.RESTART, text, cycle)

    def _verdict(self, verdict: Verdict) -> Notice:
        text = f"the job has ended: {verdict.outcome.value} (exit code {verdict.exit_code}): {verdict.reason}"
        return Notice(f"{self._run_id}/verdict", NoticeKind.VERDICT, text, exit_code=verdict.exit_code)

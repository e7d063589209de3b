"""How a verdict becomes the job's: proposed, decided, written, claimed, told.

    PROPOSED   Propose to every node; its daemon keeps the verdict as Accepted, and the node answers VerdictKept
    DECIDED    a majority keeps it (or it was found decided): the daemon gets VerdictDecided, and WriteVerdict
    WRITTEN    VerdictWritten says what the run's file holds, which counts from now on; ClaimClose for the store's key
    CLAIMED    CloseHeld says what the key holds, which counts for good: every node is told by Close, says Goodbye, and
               the coordinator leaves

A successor finds in the promises of its majority what may have been decided, and proposes nothing else. The file is
written before the key, so that a verdict which nodes have acted on can be read from outside. A file system that hangs
for FILE_BOUND does not hold the job up: the key is claimed without it.
"""

from __future__ import annotations

from enum import StrEnum

from ft_supervisor.core.protocol import coordinator_facts as facts
from ft_supervisor.core.protocol import orders
from ft_supervisor.core.protocol.actions import Announce, ClaimClose, CoordinatorAction, Tell, WriteVerdict
from ft_supervisor.core.protocol.model import KILL_BOUND, Job, Outcome, Roster, Verdict
from ft_supervisor.core.protocol.summary import Summary
from ft_supervisor.core.quorum.roster import quorum
from ft_supervisor.core.transitions import Transitions, check_invariants, check_transition

FILE_BOUND = 2.0
"""Seconds that the verdict's file gets, before the job ends without it."""


class Stage(StrEnum):
    """How far the job's verdict has come, as this coordinator knows it."""

    OPEN = "open"
    PROPOSED = "proposed"
    DECIDED = "decided"
    WRITTEN = "written"
    CLAIMED = "claimed"


STAGES: Transitions[Stage] = {
    Stage.OPEN: {
        Stage.PROPOSED: "the cycles or Slurm end the job",
        Stage.DECIDED: "a node, the file or the key has it",
    },
    Stage.PROPOSED: {Stage.DECIDED: "a majority keeps it | a node, the file or the key has one"},
    Stage.DECIDED: {Stage.WRITTEN: "VerdictWritten | FILE_BOUND is over"},
    Stage.WRITTEN: {Stage.CLAIMED: "CloseHeld"},
    Stage.CLAIMED: {},
}
"""The next stages of each stage, and what leads there."""


class VerdictCommit:
    """One coordinator's part in it. `proposal`: of its term. `verdict`: the job's, from DECIDED on;
    `summary`: what was known of the job then. All times in seconds."""

    def __init__(self) -> None:
        self.proposal: Verdict | None = None
        self.verdict: Verdict | None = None
        self.summary = Summary()
        self.began = 0.0
        """When the stage was OPEN for the last time."""
        self._stage = Stage.OPEN
        self._since = 0.0
        self._kept: set[int] = set()

    @property
    def stage(self) -> Stage:
        """How far it has come."""
        return self._stage

    def _become(self, stage: Stage, now: float) -> None:
        check_transition(STAGES, self._stage, stage)
        if self._stage is Stage.OPEN:
            self.began = now
        self._stage, self._since = stage, now

    def validate(self) -> None:
        """Raise InvalidState if an invariant does not hold. For tests."""
        decided = self._stage not in (Stage.OPEN, Stage.PROPOSED)
        check_invariants(
            self._stage,
            {
                "there is a proposal": self._stage is not Stage.PROPOSED or self.proposal is not None,
                "there is a verdict": decided == (self.verdict is not None),
            },
        )

    def propose(self, verdict: Verdict, now: float) -> None:
        """Take this for the only proposal of the term."""
        self.proposal, self._kept = verdict, set()
        if self._stage is Stage.OPEN:
            self._become(Stage.PROPOSED, now)

    def keep(self, infra_rank: int, roster: Roster) -> Verdict | None:
        """Count a node that keeps the proposal; return the proposal once a majority of `roster` does."""
        self._kept.add(infra_rank)
        return self.proposal if self._stage is Stage.PROPOSED and quorum(roster, self._kept) else None

    def decide(self, verdict: Verdict, lost: str, summary: Summary, now: float) -> list[CoordinatorAction]:
        """Take this for the job's verdict; the first one stays. `lost`: see orders.VerdictDecided."""
        if self._stage not in (Stage.OPEN, Stage.PROPOSED):
            return []
        self.verdict, self.summary = verdict, summary
        self._become(Stage.DECIDED, now)
        return [Tell(orders.VerdictDecided(verdict, lost, summary)), WriteVerdict(verdict, summary)]

    def written(self, verdict: Verdict, now: float) -> list[CoordinatorAction]:
        """The file holds this verdict: claim the key for it. Changes nothing if it was claimed without the file."""
        if self._stage is not Stage.DECIDED:
            return []
        self.verdict = verdict
        self._become(Stage.WRITTEN, now)
        return [ClaimClose(verdict)]

    def tick(self, now: float) -> list[CoordinatorAction]:
        """Go on without the file when it is not written within FILE_BOUND."""
        if self._stage is not Stage.DECIDED or now - self._since < FILE_BOUND:
            return []
        assert self.verdict is not None
        return [Announce(facts.VerdictFileHangs()), *self.written(self.verdict, now)]

    def close(self, verdict: Verdict, now: float) -> None:
        """The key holds this verdict, after our claim: nodes may have acted on it."""
        self.verdict = verdict
        self._become(Stage.CLAIMED, now)

    def is_over(self, job: Job, now: float) -> bool:
        """Whether the nodes have had the time to end since they were told."""
        if self.verdict is None or self._stage is not Stage.CLAIMED:
            return False
        bound = job.timeouts.close_grace
        if self.verdict.outcome is not Outcome.SUCCESS:
            bound += job.last_grace(self.verdict) + KILL_BOUND
        return now - self._since >= bound

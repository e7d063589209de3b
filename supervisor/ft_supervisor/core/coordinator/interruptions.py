"""Interprets what Slurm does with the job: when to ask it, and what its answers and signals mean for the verdict."""

from __future__ import annotations

from ft_supervisor.core.protocol.model import Again, Ending, Job, Outcome, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision, SlurmSaid

ASK_BOUND = 5.0
"""Seconds within which Slurm has to explain a signal. After that the signal counts as a wish to cancel the job."""
SHARE = 0.25
"""Greatest part of a job's time limit that `before_end` may use; a short job would otherwise end at once."""
WHY = {
    SlurmDecision.TIME_LIMIT: "Slurm's time limit",
    SlurmDecision.PREEMPTED: "preempted by Slurm",
    SlurmDecision.REQUEUED: "requeued in Slurm",
}


class Interruptions:
    """One coordinator's view. All times in seconds."""

    def __init__(self, job: Job, now: float) -> None:
        self._settings = job.settings.interruption
        self._outside = not job.signal_workers
        """Whether the job runs in Slurm."""
        self._ask_at = now
        self._end_at: float | None = None
        self._ahead = 0.0
        self._told: tuple[str, float] | None = None
        self._away = False

    @property
    def told_to_end(self) -> bool:
        """Whether a signal has come whose meaning is not known yet; no new cycle begins then."""
        return self._told is not None

    @property
    def end_at(self) -> float | None:
        """When Slurm ends the job, by the coordinator's own clock; None if that is not known."""
        return self._end_at

    @property
    def away(self) -> bool:
        """Whether Slurm did not answer when it was last asked."""
        return self._away

    def ask(self, now: float) -> bool:
        """Whether it is time to ask Slurm. If so, the next time is `poll` later."""
        if not self._outside or now < self._ask_at:
            return False
        self._ask_at = now + self._settings.poll
        return True

    def leave(self, name: str, signal: str, now: float) -> Verdict | None:
        """Take note of a signal that asks the node of this name to end. Return the verdict, or None: Slurm has to be
        asked."""
        reason = f"Ctrl-C (SIGINT on {name})" if signal == "SIGINT" else f"{name} was told to end: {signal}"
        if not self._outside:
            return Verdict(Outcome.CANCELLED, reason, ending=Ending.PERSON)
        if self._told is None:
            self._told, self._ask_at = (reason, now), now
        return None

    def hear(self, said: SlurmSaid, now: float) -> str | None:
        """Take Slurm's answer; return a line for people when Slurm has gone away or come back."""
        if said.end_in is not None and (self._end_at is None or not said.problem):
            self._end_at = now + said.end_in
        limit = said.limit if said.limit is not None else said.end_in
        self._ahead = min(self._settings.before_end, SHARE * limit) if limit is not None else self._ahead
        if said.problem and self._told is not None:
            self._ask_at = now  # the question itself may have been a victim of Slurm's signal
        was_away, self._away = self._away, bool(said.problem)
        if self._away != was_away:
            return said.problem or "it answers again"
        return None

    def verdict(self, said: SlurmSaid | None, now: float) -> Verdict | None:
        """Return how the job ends, if Slurm or the clock says that it does. `said`: an answer that has just come."""
        decision = said.word if said is not None and not said.problem else SlurmDecision.NOTHING
        if decision in WHY:
            again = Again.OPEN if decision is SlurmDecision.REQUEUED else self._again
            limit = decision is SlurmDecision.TIME_LIMIT
            return Verdict(Outcome.INTERRUPTED, WHY[decision], again, Ending.TIME_LIMIT if limit else Ending.PREEMPTED)
        if self._told is not None:
            reason, at = self._told
            if decision is SlurmDecision.CANCELLED or now - at >= ASK_BOUND or (said is not None and not said.problem):
                return Verdict(Outcome.CANCELLED, reason, ending=Ending.PERSON)
            return None
        if self._end_at is not None and self._ahead > 0 and now >= self._end_at - self._ahead:
            reason = f"Slurm's time limit in {max(0.0, self._end_at - now):.0f} s"
            return Verdict(Outcome.INTERRUPTED, reason, self._again, Ending.TIME_LIMIT)
        return None

    @property
    def _again(self) -> Again:
        return Again.REQUEUE if self._settings.requeue else Again.OPEN

"""When a node ends by itself, as nobody tells it how its job ends. All times in seconds."""

from __future__ import annotations

from ft_supervisor.core.actions import Leave
from ft_supervisor.core.interruptions import ASK_BOUND
from ft_supervisor.core.model import CONFIG_ERROR, EXIT_CODES, INTERRUPTED, Cycle, Job, Outcome


class GiveUp:
    """One agent's patience with its coordinator."""

    def __init__(self, job: Job, newest: Cycle | None, now: float, waited: float) -> None:
        """`waited`: for how long the node had been looking for its first coordinator before, by former agents."""
        self.watched = newest
        """The cycle whose exit barrier is to be looked at."""
        self.told = ""
        """The signal that told the node to end; "" for none."""
        self.differs: tuple[str, float] | None = None
        """Where the configuration of a store differs from ours, and since when none with ours has answered."""
        self._job = job
        self._began = now
        # All nodes of a job give up together, whoever has lost an agent meanwhile; but each agent gets its chance.
        self._join_by = now + max(job.timeouts.join - waited, min(job.timeouts.join, job.timeouts.takeover))
        self._barrier_at: float | None = None
        self._asked = False
        self._told_at: float | None = None

    @property
    def is_told(self) -> bool:
        """Whether a signal has told the node to end."""
        return self._told_at is not None

    def tell(self, signal: str, now: float) -> bool:
        """A signal tells the node to end; whether it is the first."""
        if self._told_at is not None:
            return False
        self.told, self._told_at = signal, now
        return True

    def watch(self, cycle: Cycle | None) -> None:
        """This cycle runs now; None where that is not known."""
        if cycle != self.watched:
            self.watched, self._barrier_at, self._asked = cycle, None, False

    def passed(self, cycle: Cycle, now: float) -> None:
        """The store says that its exit barrier is passed. Anyone on the network can set that key, so it ends no node:
        it is a reason to look whether there is a verdict."""
        if cycle == self.watched and self._barrier_at is None:
            self._barrier_at = now

    @property
    def hinted(self) -> bool:
        """Whether the job may be over."""
        return self._barrier_at is not None

    def asks(self, now: float) -> bool:
        """Whether to ask the coordinator, once: the job may be over, and it has not said so."""
        if self._asked or self._barrier_at is None or now - self._barrier_at < self._job.timeouts.close_grace:
            return False
        self._asked = True
        return True

    def due(self, newest: Cycle | None, since: float | None, now: float, *, led: bool) -> tuple[Leave, float] | None:
        """How to leave, and the grace for the workers, if it is time. `newest`: the cycle that the node knows of;
        `since`: when its fence counts from; `led`: a coordinator has told it what to do."""
        timeouts = self._job.timeouts
        if self.differs is not None and now - self.differs[1] >= timeouts.takeover:
            return Leave(CONFIG_ERROR, None, self.differs[0]), 0.0
        fresh = since is None and newest is None
        patience = timeouts.join if fresh else timeouts.takeover
        give_up_at = self._join_by if fresh else (self._began if since is None else since) + patience
        if now >= give_up_at:
            return Leave(INTERRUPTED, None, f"no coordinator with a majority for {patience:g} s"), 0.0
        if self._is_unanswered(led, now):
            reason = "told to end by a signal, and no coordinator answers"
            return Leave(EXIT_CODES[Outcome.CANCELLED], None, reason), timeouts.stop_grace
        return None

    def _is_unanswered(self, led: bool, now: float) -> bool:
        """We told the coordinator of the signal, and no verdict came."""
        patience = 2 * self._job.timeouts.coordinator
        if led and not self._job.signal_workers:  # it asks Slurm what the signal means
            patience += ASK_BOUND
        return self._told_at is not None and now - self._told_at >= patience

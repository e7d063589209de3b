"""Decides when a node ends without a verdict, as no coordinator gives it one. All times in seconds."""

from __future__ import annotations

from ft_supervisor.core.coordinator.interruptions import ASK_BOUND
from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.model import CONFIG_ERROR, EXIT_CODES, INTERRUPTED, Cycle, Job, Outcome


class GiveUp:
    """How long one agent waits for a coordinator, for an answer to a signal, and behind the exit barrier."""

    def __init__(self, job: Job, newest: Cycle | None, now: float, waited: float) -> None:
        """`waited`: for how long former agents of this node have looked for its first coordinator."""
        self.watched = newest
        """The cycle whose exit barrier is to be watched; None if it is not known."""
        self.signal = ""
        """The signal that the daemon got to end the node; "" for none."""
        self._job = job
        self._began = now
        # All nodes of a job give up at the same time, also those that have lost an agent; but each agent gets a chance.
        self._join_by = now + max(job.timeouts.join - waited, min(job.timeouts.join, job.timeouts.takeover))
        self._differs: tuple[str, float] | None = None
        self._barrier_at: float | None = None
        self._asked = False
        self._signalled_at: float | None = None

    def signalled(self, signal: str, now: float) -> bool:
        """Note a signal that is to end the node. Return whether it is the first."""
        if self._signalled_at is not None:
            return False
        self.signal, self._signalled_at = signal, now
        return True

    @property
    def is_signalled(self) -> bool:
        """Whether a signal is to end the node."""
        return self._signalled_at is not None

    def differs(self, reason: str, now: float) -> None:
        """Note that a store, perhaps a stranger's, has another configuration; the first reason is kept."""
        self._differs = self._differs or (reason, now)

    def connected(self) -> None:
        """Note that a store with the job's configuration has answered."""
        self._differs = None

    def watch(self, cycle: Cycle | None) -> None:
        """Note which cycle runs now; None if that is not known."""
        if cycle != self.watched:
            self.watched, self._barrier_at, self._asked = cycle, None, False

    def passed(self, cycle: Cycle, now: float) -> None:
        """Note that the store says that this cycle's exit barrier is passed.

        Anyone on the network can set that key, so it ends no node: it is a reason to look for a verdict.
        """
        if cycle == self.watched and self._barrier_at is None:
            self._barrier_at = now

    @property
    def hinted(self) -> bool:
        """Whether the exit barrier says that the job may be over."""
        return self._barrier_at is not None

    def asks(self, now: float) -> bool:
        """Return True once, when the coordinator is to be asked: the job may be over, and no verdict has come."""
        if self._asked or self._barrier_at is None or now - self._barrier_at < self._job.timeouts.close_grace:
            return False
        self._asked = True
        return True

    def due(self, newest: Cycle | None, since: float | None, now: float, *, led: bool) -> tuple[Leave, float] | None:
        """Return how to leave, and the grace for the workers, once it is time to.

        `newest`: the newest cycle that the node knows; `since`: the moment from which its fence counts, None before
        the first lease; `led`: a coordinator in charge has sent it orders on this connection.
        """
        timeouts = self._job.timeouts
        if self._differs is not None and now - self._differs[1] >= timeouts.takeover:
            return Leave(CONFIG_ERROR, None, self._differs[0]), 0.0
        until, patience = self._search_ends(newest, since)
        if now >= until:
            return Leave(INTERRUPTED, None, f"no coordinator with a majority for {patience:g} s"), 0.0
        if self._is_unanswered(led, now):
            reason = "told to end by a signal, and no coordinator answers"
            return Leave(EXIT_CODES[Outcome.CANCELLED], None, reason), timeouts.stop_grace
        return None

    def _search_ends(self, newest: Cycle | None, since: float | None) -> tuple[float, float]:
        """Return when the search for a coordinator is given up, and after how many seconds of it."""
        timeouts = self._job.timeouts
        if since is None and newest is None:
            return self._join_by, timeouts.join
        return (self._began if since is None else since) + timeouts.takeover, timeouts.takeover

    def _is_unanswered(self, led: bool, now: float) -> bool:
        """The coordinator was told of the signal, and no verdict has come."""
        patience = 2 * self._job.timeouts.coordinator
        if led and not self._job.signal_workers:  # the coordinator asks Slurm what the signal means
            patience += ASK_BOUND
        return self._signalled_at is not None and now - self._signalled_at >= patience

"""A simulated slurmctld, whose behaviour the plan sets, and the invariants of a daemon's last deed. Raises Breach."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.clockwork import Breach

from ft_supervisor.core.protocol import actions
from ft_supervisor.core.protocol.actions import DaemonAction
from ft_supervisor.core.protocol.events import (
    BatchHost,
    BatchHostAnswered,
    DaemonEvent,
    Deed,
    DeedDone,
    InBatchJob,
    Signalled,
)
from ft_supervisor.core.protocol.model import KILL_BOUND, Again
from ft_supervisor.core.protocol.orders import SlurmSaid

if TYPE_CHECKING:
    from tests.simulation.node import SimDaemon
    from tests.simulation.world import World

ANSWERS = {
    **{"lives": BatchHost.MEMBER, "silent": BatchHost.SILENT, "gone": BatchHost.GONE, "over": BatchHost.NONE},
    "cut": BatchHost.GONE,
}
"""slurmctld's answer about the batch host, by Plan.slurm, while that host has power."""
CALL_BOUND = 5.0
"""Seconds that the request for a comment, or against a requeue, takes at most: accounting.BOUND, expedited.BOUND, and
one second more."""
REQUEUE_BOUND = 20.0
COMPLETION = 40.0
"""Seconds after which this slurmctld has given up any batch host."""
PATIENCE = 60.0
"""Seconds after which `launch` ends srun, and so signals a daemon that still waits for Slurm."""
SLACK = 10.0


class Slurmctld:
    """Answers the daemons that end the job. It has a random stream of its own, so that it changes no other draws."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = random.Random(f"slurmctld {world.plan.seed}")
        self._answers: dict[SimDaemon, BatchHost | None] = {}
        self._requeued: set[SimDaemon] = set()
        self._began: dict[SimDaemon, float] = {}

    def job(self) -> InBatchJob:
        """Return the event with which every daemon learns of its job: the script runs on the first node."""
        return InBatchJob(1, self._world.job.nodes[0])

    def perform(self, daemon: SimDaemon, action: DaemonAction) -> None:
        """Carry out a daemon's request, and check that it may ask for it."""
        reached = self._is_reached_by(daemon.node.rank)
        match action:
            case actions.KillLeftovers():
                self._begin(daemon)
            case actions.AskBatchHost():
                self._ask(daemon)
            case actions.WriteComment():
                self._answer(daemon, DeedDone(Deed.COMMENT, reached), CALL_BOUND)
            case actions.ForbidRequeue():
                self._answer(daemon, DeedDone(Deed.FORBID_REQUEUE, reached), CALL_BOUND)
            case actions.RequeueJob():
                self._requeue(daemon)
            case actions.CompleteJob():
                self._complete(daemon, action)

    def answer(self, rank: int) -> SlurmSaid:
        """Return the answer to a coordinator's question, which the daemon of this node asks."""
        return self._world.slurm.answer(self._world.now) if self._is_reached_by(rank) else SlurmSaid(problem="away")

    def _is_reached_by(self, rank: int) -> bool:
        """Whether this node's requests arrive and are granted."""
        slurm = self._world.plan.slurm
        return slurm in ANSWERS and not (slurm == "cut" and rank == 0)

    def _answer(self, daemon: SimDaemon, event: DaemonEvent, bound: float) -> None:
        """Send an answer: after up to a second, even if slurmctld is away; after `bound` seconds if it hangs."""
        hangs = self._world.plan.slurm == "hangs"
        self._world.after(bound if hangs else self._dice.uniform(0.01, 1.0), daemon.do, daemon.feed, event)

    def _ask(self, daemon: SimDaemon) -> None:
        world = self._world
        if world.plan.slurm == "hangs":
            return
        answer = ANSWERS[world.plan.slurm] if self._is_reached_by(daemon.node.rank) else None
        if answer is not None and not world.nodes[0].host.up:
            answer = self._dice.choice((BatchHost.MEMBER, BatchHost.SILENT, BatchHost.GONE))
        self._answers[daemon] = answer
        self._answer(daemon, BatchHostAnswered(answer, "" if answer else "Unable to contact slurm controller"), 0.0)

    def _requeue(self, daemon: SimDaemon) -> None:
        chosen = self._world.checks.chosen
        if daemon in self._requeued:
            raise Breach("slurm", f"{daemon.node.name} requeues the job twice")
        if chosen is None or (chosen.again is not Again.REQUEUE and not self._world.checks.outside):
            raise Breach("slurm", f"{daemon.node.name} requeues the job, whose verdict is {chosen}")
        self._requeued.add(daemon)
        self._answer(daemon, DeedDone(Deed.REQUEUE, self._is_reached_by(daemon.node.rank)), REQUEUE_BOUND)

    def _complete(self, daemon: SimDaemon, complete: actions.CompleteJob) -> None:
        world, name = self._world, daemon.node.name
        chosen = world.checks.chosen
        if chosen is None or (complete.exit_code != chosen.exit_code and not world.checks.outside):
            raise Breach("slurm", f"{name} ends the job with {complete.exit_code}, and the verdict is {chosen}")
        answer = self._answers.get(daemon)
        waits_for_us = answer is BatchHost.SILENT and daemon.node.rank == 0
        if not complete.host_lost and (answer not in (BatchHost.SILENT, BatchHost.GONE) or waits_for_us):
            raise Breach("slurm", f"{name} ends the job, whose script can: its host is {answer}")
        if self._is_reached_by(daemon.node.rank):
            world.after(self._dice.uniform(0.1, COMPLETION), daemon.do, daemon.feed, DeedDone(Deed.COMPLETE))
        else:
            world.after(PATIENCE, daemon.do, daemon.feed, Signalled("SIGTERM"))

    # -- the bound

    def _begin(self, daemon: SimDaemon) -> None:
        self._world.checks.left_at[daemon.node.rank] = self._world.now
        self._began[daemon] = daemon.awake()
        self._world.after(self._bound, self._check_left, daemon)

    @property
    def _bound(self) -> float:
        job = self._world.job
        waiting = job.longest_grace + KILL_BOUND + job.timeouts.close_grace
        return 2 * CALL_BOUND + REQUEUE_BOUND + waiting + PATIENCE + SLACK

    def _check_left(self, daemon: SimDaemon) -> None:
        """Check that the daemon has left in time. Time in which it stood still does not count."""
        left = self._began[daemon] + self._bound - daemon.awake()
        if daemon.alive and left > 0:
            self._world.after(left + 0.1, self._check_left, daemon)
        elif daemon.alive:
            raise Breach("slurm", f"{daemon.node.name} still waits for Slurm after {self._bound:.0f} s")

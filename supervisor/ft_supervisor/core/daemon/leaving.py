"""How a daemon leaves once all its children are gone: a last look for the verdict's file, its own files, the last deed.

A late comer has given up because no coordinator answers it. If the job is over, the run's verdict file has the
code with which it leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ft_supervisor.core.daemon.last_deed import LastDeed
from ft_supervisor.core.protocol import daemon_facts as facts
from ft_supervisor.core.protocol.actions import (
    Announce,
    DaemonAction,
    FinishFiles,
    KillLeftovers,
    Leave,
    LookForVerdict,
)
from ft_supervisor.core.protocol.events import DaemonEvent, InBatchJob, NoVerdict, Signalled, VerdictFileFound
from ft_supervisor.core.protocol.model import INTERRUPTED, Accepted, Job
from ft_supervisor.core.protocol.orders import VerdictDecided
from ft_supervisor.core.transitions import check_transition

LATE_BOUND = 2.0
"""Seconds that the last look for the verdict's file may take: the shared file system may hang."""


class Stage(StrEnum):
    """What a leaving daemon does."""

    BEGINNING = "beginning"
    LOOKING = "looking"
    LAST_DEED = "last_deed"
    LEFT = "left"


TRANSITIONS: Mapping[Stage, Mapping[Stage, str]] = {
    Stage.BEGINNING: {
        Stage.LOOKING: "no verdict is known, and the code is 75",
        Stage.LAST_DEED: "this node sees to the job's end in Slurm",
        Stage.LEFT: "nothing else is to be done",
    },
    Stage.LOOKING: {
        Stage.LAST_DEED: "the deputy has found the verdict",
        Stage.LEFT: "the file was found, or is not there, or cannot be read in time",
    },
    Stage.LAST_DEED: {Stage.LEFT: "the last deed is done"},
    Stage.LEFT: {},
}


class Leaving:
    """Pure. `begin` once, and then `handle` with each event until it returns Leave. All times in seconds."""

    def __init__(
        self,
        job: Job,
        node: str,
        leave: Leave,
        batch: InBatchJob | None,
        decided: VerdictDecided | None,
        accepted: Accepted | None,
    ) -> None:
        """`node`: this node's name. `leave`: how it leaves, unless the last look finds a verdict. `batch` None: there
        is no Slurm. `decided`: the newest VerdictDecided of this node's coordinator. `accepted`: the proposal
        that this node has accepted."""
        self.stage = Stage.BEGINNING
        self._job = job
        self._node = node
        self._leave = leave
        self._batch = batch
        self._decided = decided
        self._accepted = accepted
        self._look_until: float | None = None
        self._signal: Signalled | None = None
        """A signal during the last look, which the last deed heeds."""
        self._deed: LastDeed | None = None
        self._actions: list[DaemonAction] = []

    @property
    def due(self) -> float | None:
        """When `handle` has to be called at the latest; None while only an event matters."""
        return self._look_until if self._deed is None else self._deed.due

    def validate(self) -> None:
        """Raise AssertionError where the fields contradict the stage."""
        assert (self._look_until is not None) == (self.stage is Stage.LOOKING), self.stage
        assert (self._deed is not None and not self._deed.over) == (self.stage is Stage.LAST_DEED), self.stage
        if self._deed is not None:
            self._deed.validate()

    def begin(self, now: float) -> list[DaemonAction]:
        """Return the first actions, Leave among them if nothing else is to be done."""
        self._actions = []
        if self._leave.verdict is None and self._leave.code == INTERRUPTED:
            self._become(Stage.LOOKING)
            self._look_until = now + LATE_BOUND
            self._do(LookForVerdict())
        else:
            self._finish(now)
        return self._actions

    def handle(self, event: DaemonEvent, now: float) -> list[DaemonAction]:
        """Take one event, and return what to do. Ignores what concerns the children."""
        self._actions = []
        if self.stage is Stage.LOOKING:
            self._look(event, now)
        elif self.stage is Stage.LAST_DEED:
            self._go_on(event, now)
        return self._actions

    def _look(self, event: DaemonEvent, now: float) -> None:
        assert self._look_until is not None
        match event:
            case VerdictFileFound(found):
                reason = f"the run's verdict is there already: {found.reason}"
                self._leave = Leave(found.exit_code, found, reason)
            case NoVerdict():
                pass
            case Signalled():
                self._signal = self._signal or event
                return
            case _ if now < self._look_until:
                return
            case _:
                self._do(Announce(facts.LastLookHangs(LATE_BOUND)))
        self._look_until = None
        self._finish(now)

    def _finish(self, now: float) -> None:
        leave = self._leave
        self._do(FinishFiles())
        self._do(Announce(facts.DaemonLeaves(leave.code, leave.verdict, leave.reason)))
        self._deed = self._last_deed()
        if self._deed is None:
            self._become(Stage.LEFT)
            self._do(leave)
            return
        self._become(Stage.LAST_DEED)
        self._do(KillLeftovers())
        self._actions += self._deed.begin(now)
        if self._signal is not None:
            self._go_on(self._signal, now)

    def _last_deed(self) -> LastDeed | None:
        """Return the closer's if our coordinator has closed the job, and the deputy's if this node is the deputy."""
        verdict, accepted = self._leave.verdict, self._accepted
        if self._batch is None:
            return None
        if self._decided is not None:
            return LastDeed(self._job, self._node, self._batch, self._decided, deputy=False)
        if verdict is not None and accepted is not None and accepted.deputy:
            return LastDeed(self._job, self._node, self._batch, VerdictDecided(verdict), deputy=True)
        return None

    def _go_on(self, event: DaemonEvent, now: float) -> None:
        assert self._deed is not None
        self._actions += self._deed.handle(event, now)
        if self._deed.over:
            self._become(Stage.LEFT)
            self._do(self._leave)

    def _become(self, stage: Stage) -> None:
        check_transition(TRANSITIONS, self.stage, stage)
        self.stage = stage

    def _do(self, action: DaemonAction) -> None:
        self._actions.append(action)
